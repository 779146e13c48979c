import numpy as np
import pytest

from spectrope.core.errors import ConfigError
from spectrope.stats.examples import jackknife_intervals, mean_intervals
from spectrope.stats.paired import (
    Discordance,
    difference_intervals,
    exceedance_p,
    lower_bounds,
    net_loss_interval,
    net_loss_p,
)
from spectrope.stats.seeds import seed_proportion, t_interval


def pairs(lost, gained, n):
    return Discordance(np.array(lost), np.array(gained), n)


def test_counts():
    first = np.array([1, 1, 1, 0, 0, 1], dtype=bool)
    second = np.array([[1, 0, 0, 1, 0, 1], [0, 0, 0, 0, 0, 0]], dtype=bool)
    found = Discordance.of(first, second)
    assert found.lost.tolist() == [2, 4]
    assert found.gained.tolist() == [1, 0]
    np.testing.assert_allclose(found.difference, [1 / 6, 4 / 6])


def test_interval_of_bonett_and_price_by_hand():
    # n = 98, n12 = 11, n21 = 3: p = 0.12, q = 0.04, difference 0.08, variance (0.16 - 0.0064) / 100.
    found = difference_intervals(pairs([11], [3], 98))
    half = 1.959963984540054 * np.sqrt(0.001536)
    np.testing.assert_allclose([found.low[0], found.high[0]], [0.08 - half, 0.08 + half], rtol=1e-12)
    assert found.estimate[0] == 8 / 98


def test_no_disagreement_still_has_width_and_extremes_stay_in_range():
    found = difference_intervals(pairs([0, 50], [0, 0], 50))
    assert found.low[0] < 0 < found.high[0]
    assert found.high[1] <= 1


@pytest.mark.parametrize(
    ("p12", "p21", "n"), [(0.001, 0.001, 2000), (0.02, 0.01, 500), (0.5, 0.01, 300), (0.9, 0, 200)]
)
def test_intervals_and_bounds_cover(p12, p21, n):
    rng = np.random.default_rng(0)
    lost, gained, _ = rng.multinomial(n, [p12, p21, 1 - p12 - p21], size=20_000).T
    found, low = difference_intervals(pairs(lost, gained, n)), lower_bounds(pairs(lost, gained, n))
    true = p12 - p21
    assert np.mean((found.low <= true) & (true <= found.high)) >= 0.945
    assert np.mean(low <= true) >= 0.94


def test_the_test_inverts_the_bound():
    rng = np.random.default_rng(1)
    found = pairs(rng.integers(0, 90, 300), rng.integers(0, 30, 300), 400)
    np.testing.assert_array_equal(exceedance_p(found, 0.1) <= 0.05, lower_bounds(found, 0.95) >= 0.1)


@pytest.mark.parametrize(("lost", "gained", "n"), [(0, 0, 6), (3, 1, 12), (11, 0, 18)])
def test_the_interval_of_a_net_loss_ends_where_its_tests_reject(lost, gained, n):
    found = net_loss_interval(lost, gained, n)
    mirrored = net_loss_interval(gained, lost, n)
    assert (found.low, found.high) == pytest.approx((-mirrored.high, -mirrored.low), abs=1e-6)
    assert net_loss_p(lost, gained, n, found.low - 0.01)[1] <= 0.025
    assert net_loss_p(lost, gained, n, found.low + 0.01)[1] > 0.025


def test_a_net_loss_far_from_what_is_supposed_has_the_smallest_p_value():
    assert net_loss_p(0, 0, 36, 0.9) == (0.001, 1.0)
    assert net_loss_p(0, 0, 36, -0.9) == (1.0, 0.001)
    assert net_loss_p(3, 1, 6, 1.0) == (0.001, 1.0)  # "By at most 1" is always true.
    assert net_loss_p(6, 0, 6, 0.2)[1] == pytest.approx(0.6**6 + 0.001, abs=1e-6)


@pytest.mark.parametrize(("lost", "gained", "n"), [(0, 0, 0), (-3, 3, 5), (4, 2, 5)])
def test_counts_of_no_pairs_are_refused(lost, gained, n):
    for ask in (lambda: net_loss_p(lost, gained, n, 0.0), lambda: net_loss_interval(lost, gained, n)):
        with pytest.raises(ConfigError, match="pairs cannot hold"):
            ask()
    with pytest.raises(ConfigError, match="are no counts of"):
        Discordance(np.array(lost or -1), np.array(gained), n)


@pytest.mark.parametrize("excess", [1.5, -2.0, float("nan")])
def test_a_difference_of_shares_lies_between_minus_one_and_one(excess):
    with pytest.raises(ConfigError, match="excess must lie from -1 to 1"):
        net_loss_p(5, 0, 5, excess)


@pytest.mark.parametrize("level", [95.0, 0.0, 1.0, float("nan")])
def test_a_level_is_a_share(level):
    one = pairs(np.array([3]), np.array([1]), 10)
    asked = [
        lambda: difference_intervals(one, level),
        lambda: lower_bounds(one, level),
        lambda: net_loss_interval(3, 1, 10, level),
        lambda: t_interval(np.array([1.0, 2.0, 3.0]), level),
        lambda: seed_proportion([True, False], level),
        lambda: mean_intervals(np.array([1.0, 2.0, 3.0]), level),
        lambda: jackknife_intervals(lambda index: index.mean(keepdims=True), 10, level=level),
    ]
    for ask in asked:
        with pytest.raises(ConfigError, match="level must lie between 0 and 1"):
            ask()
