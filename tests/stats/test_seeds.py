import numpy as np
import pytest
from scipy import stats

from spectrope.core.errors import ConfigError
from spectrope.stats.seeds import MIN_SEEDS, seed_bootstrap, seed_proportion, sign_flip_p, t_interval


def test_six_is_the_fewest_that_a_two_sided_sign_test_can_decide():
    assert stats.binomtest(MIN_SEEDS, MIN_SEEDS).pvalue < 0.05
    assert stats.binomtest(MIN_SEEDS - 1, MIN_SEEDS - 1).pvalue > 0.05


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        ([True] * 6, "holds"),
        ([False] * 6, "fails"),
        ([True] * 5, "inconclusive"),
        ([False] * 5, "inconclusive"),
        ([True] * 5 + [False], "inconclusive"),
        ([True] * 17 + [False] * 3, "holds"),
    ],
)
def test_verdicts(found, verdict):
    assert seed_proportion(found).verdict == verdict


def test_fewer_than_six_stay_inconclusive_at_any_level():
    assert seed_proportion([True] * 5, level=0.5).verdict == "inconclusive"


def test_proportions_are_clopper_pearson():
    found = seed_proportion([True, True, False, True, False, True, True])
    assert found.count == 5
    assert found.proportion.low == pytest.approx(stats.beta.ppf(0.025, 5, 3))
    assert found.proportion.high == pytest.approx(stats.beta.ppf(0.975, 6, 2))


def test_t_interval_against_a_table():
    found = t_interval(np.array([1.0, 2, 3, 4, 5, 6]))  # mean 3.5, s = 1.870829, t_5 = 2.570582
    half = 2.570582 * 1.870829 / np.sqrt(6)
    np.testing.assert_allclose([found.low, found.high], [3.5 - half, 3.5 + half], rtol=1e-6)


def test_bootstrap_resamples_seeds():
    values = np.random.default_rng(0).normal(10, 1, 40)
    found = seed_bootstrap(values, np.random.default_rng(1))
    again = seed_bootstrap(values, np.random.default_rng(1))
    student = t_interval(values)
    assert (found.low, found.high) == (again.low, again.high)
    assert found.low == pytest.approx(student.low, abs=0.06)
    assert found.high == pytest.approx(student.high, abs=0.06)


def test_equal_values_have_no_width():
    values = np.full(6, 0.7)
    for found in (seed_bootstrap(values, np.random.default_rng(0)), t_interval(values)):
        assert found.low == pytest.approx(0.7)
        assert found.high == pytest.approx(0.7)


def test_sign_flips_are_enumerated():
    assert sign_flip_p(np.array([1.0, 2, 3, 4, 5, 6])) == 2 / 2**6
    # Sums of ±1 ±2 ±3 that reach |1 + 2 - 3| = 0: all of them.
    assert sign_flip_p(np.array([1.0, 2, -3])) == 1
    # Of 16 sign patterns of 1, 1, 1, 5 those with |sum| >= 6: 5 + at least two of three, either sign.
    assert sign_flip_p(np.array([1.0, 1, -1, 5])) == 8 / 16


def test_many_seeds_are_sampled_reproducibly():
    x = np.random.default_rng(0).normal(0.4, 1, 25)
    assert sign_flip_p(x) == sign_flip_p(x)
    assert sign_flip_p(x) == pytest.approx(stats.ttest_1samp(x, 0).pvalue, abs=0.02)


def test_too_few_are_refused():
    with pytest.raises(ConfigError, match="needs at least one run"):
        seed_proportion([])
    for use in (t_interval, sign_flip_p, lambda x: seed_bootstrap(x, np.random.default_rng(0))):
        with pytest.raises(ConfigError, match="needs at least 2 values; got 1"):
            use(np.array([1.0]))
