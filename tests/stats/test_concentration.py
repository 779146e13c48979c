import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from spectrope.stats.concentration import INDICES, index_ranges, indices, shares

MAX, GINI, PARTICIPATION, ENTROPY = range(4)


@pytest.mark.parametrize("h", [1, 2, 3, 8, 16, 96])
def test_equal_drops_give_the_least_concentration_exactly(h):
    found = indices(np.full(h, 7.0))
    assert found[MAX] == 1 / h
    assert found[GINI] == pytest.approx(0, abs=1e-15)
    np.testing.assert_allclose(found[[PARTICIPATION, ENTROPY]], h, rtol=1e-14)


@pytest.mark.parametrize("h", [1, 2, 16])
def test_one_head_with_everything_gives_the_most_exactly(h):
    drops = np.zeros(h)
    drops[h // 2] = 93.0
    np.testing.assert_array_equal(indices(drops), [1, (h - 1) / h, 1, 1])


def test_values_worked_by_hand():
    drops = np.array([6.0, 3.0, 1.0, -50.0])
    expected = [0.6, (3 * 0.6 + 0.3 - 0.1) / 4, 1 / 0.46, 10 / (6**0.6 * 3**0.3)]
    np.testing.assert_allclose(indices(drops), expected, rtol=1e-14)


def test_gini_equals_the_mean_absolute_difference():
    s = np.random.default_rng(0).dirichlet(np.ones(9))
    pairs = np.abs(s[:, None] - s).sum()
    assert indices(100 * s)[GINI] == pytest.approx(pairs / (2 * 9 * 9 * s.mean()), rel=1e-13)


def test_negative_drops_count_as_nothing():
    np.testing.assert_array_equal(shares(np.array([3.0, -3.0, 1.0])), [0.75, 0, 0.25])


@pytest.mark.parametrize(("total", "defined"), [(1.999, False), (2.0, True), (0.0, False)])
def test_shares_need_a_total_of_two_points(total, defined):
    drops = np.array([[total, -5.0], [40.0, 60.0]])
    found = indices(drops)
    assert np.isfinite(found[0]).all() == defined
    assert np.isnan(found[0]).all() != defined
    assert np.isfinite(found[1]).all()


def test_shares_of_nothing_are_undefined_whatever_the_floor():
    assert np.isnan(shares(np.zeros(4), min_total=0.0)).all()


DROPS = arrays(float, st.integers(1, 20), elements=st.floats(-100, 100)).filter(lambda d: d.clip(0).sum() > 2)


@given(DROPS, st.floats(1.0, 1e6), st.randoms(use_true_random=False))
def test_indices_stay_in_range_and_ignore_scale_order_and_order_of_heads(drops, factor, random):
    found = indices(drops)
    low, high = index_ranges(len(drops))
    assert (found >= low - 1e-12).all()
    assert (found <= high * (1 + 1e-12)).all()
    assert found[ENTROPY] >= found[PARTICIPATION] * (1 - 1e-12)
    np.testing.assert_allclose(indices(drops * factor), found, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(indices(np.array(random.sample(list(drops), len(drops)))), found, rtol=1e-12)


def test_batches_equal_rows():
    drops = np.random.default_rng(1).normal(5, 5, (3, 4, 8))
    rows = [[indices(row) for row in plane] for plane in drops]
    np.testing.assert_array_equal(indices(drops), rows)
    assert indices(drops).shape[-1] == len(INDICES)
