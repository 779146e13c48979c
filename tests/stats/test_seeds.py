import numpy as np
import pytest
from scipy import stats

from spectrope.core.errors import ConfigError
from spectrope.stats.seeds import MIN_SEEDS, seed_proportion, t_interval


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


def test_equal_values_have_no_width():
    found = t_interval(np.full(6, 0.7))
    assert found.low == pytest.approx(0.7)
    assert found.high == pytest.approx(0.7)


def test_too_few_are_refused():
    with pytest.raises(ConfigError, match="needs at least one run"):
        seed_proportion([])
    with pytest.raises(ConfigError, match="needs at least 2 values; got 1"):
        t_interval(np.array([1.0]))
