import numpy as np
import pytest
from scipy import stats

from spectrope.stats.bootstrap import reflected_intervals, resampled_means
from spectrope.stats.concentration import indices
from spectrope.stats.interval import Interval


def differences(rng, n, probabilities):
    """Paired differences with given mean and some noise both ways."""
    lost = rng.random((n, len(probabilities))) < np.array(probabilities)
    other = rng.random(lost.shape)
    return np.clip(lost.astype(np.int8) - (other < 0.01) + (other > 0.99), -1, 1).astype(np.int8)


@pytest.mark.parametrize("dtype", [np.int8, np.float64])
def test_resampled_means_have_the_moments_of_the_mean(dtype):
    rng = np.random.default_rng(0)
    x = differences(rng, 400, [0.3, 0.05, 0.0]).astype(dtype)
    means = resampled_means(x, 20_000, rng)
    covariance = np.cov(x.T.astype(float), ddof=0) / 400
    np.testing.assert_allclose(means.mean(0), x.mean(0), atol=5 * np.sqrt(np.diag(covariance) / 20_000).max())
    np.testing.assert_allclose(np.cov(means.T), covariance, rtol=0.05, atol=2e-6)


def test_integer_means_are_exact_multiples_and_do_not_depend_on_the_dtype():
    x = differences(np.random.default_rng(0), 300, [0.3, 0.1])
    whole = resampled_means(x, 500, np.random.default_rng(1))
    np.testing.assert_array_equal(whole, resampled_means(x.astype(float), 500, np.random.default_rng(1)))
    np.testing.assert_array_equal(whole, np.round(whole * 300) / 300)


def test_large_integers_are_not_summed_in_single_precision():
    x = np.full((3, 1), 2**24 + 1)
    assert (resampled_means(x, 10, np.random.default_rng(0)) == 2**24 + 1).all()


def test_intervals_equal_scipys_basic_bootstrap():
    rng = np.random.default_rng(2)
    x = differences(rng, 500, [0.3])
    found = reflected_intervals(x.mean(0), resampled_means(x, 40_000, rng))
    kwargs = {"method": "basic", "n_resamples": 20_000, "rng": rng, "vectorized": True}
    expected = stats.bootstrap((x[:, 0],), np.mean, **kwargs).confidence_interval
    np.testing.assert_allclose([found.low[0], found.high[0]], expected, atol=0.002)


def test_undefined_statistics_have_no_interval():
    estimate = np.array([1.0, np.nan, 1.0, 1.0])
    draws = np.random.default_rng(0).normal(1, 0.1, (1000, 4))
    draws[:24, 2] = np.nan
    draws[:27, 3] = np.nan
    found = reflected_intervals(estimate, draws)
    assert [found.at(i) is None for i in range(4)] == [False, True, False, True]
    assert isinstance(found.at(0), Interval)


def test_an_interval_contains_its_estimate_and_keeps_to_its_range():
    draws = np.random.default_rng(0).normal(3.0, 0.1, (1000, 1))  # biased upwards
    found = reflected_intervals(np.array([2.5]), draws)
    assert found.high[0] == 2.5
    assert found.clipped(2.2, 3.0).low[0] == 2.2
    assert found.scaled(10).estimate[0] == 25


def coverage(probabilities, n, repeats=150):
    rng = np.random.default_rng(3)
    # P(x = 1) - P(x = -1) of `differences`: noise acts on the lost (down) and on the rest (both ways).
    true = indices(99 * np.array(probabilities))
    hits = np.zeros(4)
    for _ in range(repeats):
        x = differences(rng, n, probabilities)
        draws = indices(100 * resampled_means(x, 400, rng))
        found = reflected_intervals(indices(100 * x.mean(0)), draws)
        hits += (found.low <= true + 1e-9) & (true - 1e-9 <= found.high)
    return hits / repeats


def test_indices_are_covered_where_heads_differ():
    assert (coverage([0.4, 0.25, 0.15, 0.1, 0.06, 0.04, 0.02, 0.01], 2000) >= 0.87).all()


def test_shares_and_effective_numbers_are_covered_where_heads_tie():
    assert (coverage([0.5] + [0.02] * 7, 2000)[[0, 2, 3]] >= 0.87).all()
    assert (coverage([0.05] * 8, 2000)[[2, 3]] >= 0.9).all()
