"""Rank correlation over all pairs and within groups."""

import numpy as np
import pytest
from scipy import stats

from spectrope.core.errors import ConfigError
from spectrope.stats.rank import rank_correlation, spearman


def pairs(n=24, seed=0, slope=1.0):
    x = np.random.default_rng(seed).normal(size=n)
    return x, slope * x + np.random.default_rng(seed + 1).normal(size=n)


def test_it_is_spearmans_with_ties_too():
    x, y = pairs()
    for values in (y, y.round()):
        assert rank_correlation(x, values).rho.estimate == pytest.approx(stats.spearmanr(x, values).statistic)


def test_its_p_value_is_that_of_a_permutation_test():
    x, y = pairs(slope=0.4)
    found = rank_correlation(x, y, draws=4999)
    assert found.p_value == pytest.approx(stats.spearmanr(x, y).pvalue, abs=0.02)
    assert found.n == 24


def test_its_interval_covers_and_its_test_keeps_its_size():
    true, hits, rejected = 6 / np.pi * np.arcsin(0.25), 0, 0
    for seed in range(150):
        x, y = pairs(seed=2 * seed, slope=3**-0.5)
        found = rank_correlation(x, y, draws=199, seed=seed)
        hits += found.rho.low <= true <= found.rho.high
        rejected += rank_correlation(x, np.roll(y, 5), draws=199, seed=seed).p_value <= 0.05
    assert hits >= 135
    assert rejected <= 15


def test_a_difference_between_groups_makes_no_correlation_within_them():
    groups = np.repeat([0, 1, 2], 8)
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=24) + 10 * groups, rng.normal(size=24) + 10 * groups
    assert rank_correlation(x, y).p_value < 0.01
    within = rank_correlation(x, y, groups)
    assert within.p_value > 0.05
    assert within.rho.low < 0 < within.rho.high
    ranks = [stats.rankdata(v[groups == g]) - 4.5 for v in (x, y) for g in range(3)]
    assert within.rho.estimate == pytest.approx(
        np.corrcoef(np.concatenate(ranks[:3]), np.concatenate(ranks[3:]))[0, 1]
    )


def test_no_spread_is_no_correlation():
    assert rank_correlation(np.ones(8), np.arange(8.0)) is None
    groups = np.repeat([0, 1], 4)
    assert rank_correlation(groups * 1.0, np.arange(8.0), groups) is None


def test_too_few_or_undefined_pairs_are_refused():
    with pytest.raises(ConfigError, match="needs at least 4 pairs; got 3"):
        rank_correlation(np.arange(3.0), np.arange(3.0))
    with pytest.raises(ConfigError, match="needs finite values"):
        rank_correlation(np.array([0, 1, 2, np.nan]), np.arange(4.0))


def test_spearman_against_values_worked_by_hand():
    first, second = np.array([1.0, 2, 3, 4]), np.array([1.0, 3, 2, 4])
    assert spearman(first, second) == pytest.approx(1 - 6 * 2 / (4 * 15))
    assert spearman(-first, second) == pytest.approx(-0.8)
    assert spearman(first, np.zeros(4)) is spearman(np.zeros(4), second) is None


def test_what_has_no_correlation_is_refused():
    x, y = pairs()
    with pytest.raises(ConfigError, match="draws must be at least 1; got 0"):
        rank_correlation(x, y, draws=0)
    with pytest.raises(ConfigError, match="needs finite values"):
        spearman(np.array([1.0, np.nan]), np.array([1.0, 2.0]))
    assert spearman(np.zeros(0), np.zeros(0)) is None
