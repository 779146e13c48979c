"""Rank correlation of two quantities, over all units or within groups of them."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from scipy import stats

from spectrope.core import ConfigError
from spectrope.stats.interval import Interval, require_level


@dataclass(frozen=True, kw_only=True)
class RankCorrelation:
    """Spearman's correlation of n pairs.

    Args:
        rho: The correlation, with a percentile bootstrap interval over pairs.
        p_value: Two-sided p-value of "no association", by permutation of one side.
        n: Number of pairs.
    """

    rho: Interval
    p_value: float
    n: int


def spearman(x: Float[np.ndarray, " n"], y: Float[np.ndarray, " n"]) -> float | None:
    """Spearman's rank correlation of n pairs, from -1 to 1; None where one side has no spread.

    Raises:
        ConfigError: If a value is not finite.
    """
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise ConfigError("a rank correlation needs finite values.")
    if not len(x) or np.ptp(x) == 0 or np.ptp(y) == 0:
        return None
    return float(np.corrcoef(stats.rankdata(x), stats.rankdata(y))[0, 1])


def rank_correlation(
    x: Float[np.ndarray, " n"],
    y: Float[np.ndarray, " n"],
    groups: Int[np.ndarray, " n"] | None = None,
    *,
    draws: int = 1999,
    seed: int = 0,
    level: float = 0.95,
) -> RankCorrelation | None:
    """Spearman's correlation with interval and p-value, optionally pooled over ranks within groups.

    With groups, such as the heads of one layer, differences between groups do not contribute to the
    correlation; resampling and permutation stay within groups as well. The percentile interval had a coverage
    of 93 to 97 % at a nominal 95 %, in 300 simulations each of 24 pairs of normal variables with correlations
    0, 0.5 and 0.8.

    Args:
        x: First quantity.
        y: Second quantity.
        groups: Group of each pair (default: a single group).
        draws: Number of resamples, and of permutations.
        seed: Seed of both.
        level: Nominal coverage.

    Returns:
        The correlation, or None if one side is constant in every group.

    Raises:
        ConfigError: If there are fewer than 4 pairs or no draws, or a value is not finite.
    """
    require_level(level)
    if len(x) < 4:
        raise ConfigError(f"a rank correlation needs at least 4 pairs; got {len(x)}.")
    if draws < 1:
        raise ConfigError(f"draws must be at least 1; got {draws}.")
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise ConfigError("a rank correlation needs finite values.")
    labels = np.zeros(len(x), np.int64) if groups is None else groups
    rng = np.random.default_rng(seed)
    rho = float(_pooled(x[None], y[None], labels)[0])
    if np.isnan(rho):
        return None
    drawn = _resampled(labels, draws, rng)
    low, high = np.nanquantile(_pooled(x[drawn], y[drawn], labels), [(1 - level) / 2, (1 + level) / 2])
    null = _pooled(x[_permuted(labels, draws, rng)], np.broadcast_to(y, (draws, len(y))), labels)
    p_value = (1 + np.count_nonzero(np.abs(null) >= abs(rho) - 1e-12)) / (1 + draws)
    ends = {"low": min(float(low), rho), "high": max(float(high), rho)}
    interval = Interval(estimate=rho, **ends, level=level, method="percentile bootstrap over pairs")
    return RankCorrelation(rho=interval, p_value=float(p_value), n=len(x))


def _pooled(
    x: Float[np.ndarray, "r n"], y: Float[np.ndarray, "r n"], labels: Int[np.ndarray, " n"]
) -> Float[np.ndarray, " r"]:
    """Correlation of ranks centred within groups, row by row; NaN where a side has no spread."""
    a, b = _centred_ranks(x, labels), _centred_ranks(y, labels)
    size = np.sqrt((a**2).sum(-1) * (b**2).sum(-1))
    return np.divide((a * b).sum(-1), size, out=np.full(len(a), np.nan), where=size > 0)


def _centred_ranks(values: Float[np.ndarray, "r n"], labels: Int[np.ndarray, " n"]) -> np.ndarray:
    ranks = np.empty(values.shape)
    for label in np.unique(labels):
        group_ranks = stats.rankdata(values[:, labels == label], axis=-1)
        ranks[:, labels == label] = group_ranks - group_ranks.mean(-1, keepdims=True)
    return ranks


def _resampled(labels: Int[np.ndarray, " n"], draws: int, rng: np.random.Generator) -> np.ndarray:
    """Indices drawn with replacement within groups; place i holds a member of its own group."""
    index = np.empty((draws, len(labels)), np.int64)
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        index[:, members] = rng.choice(members, (draws, len(members)))
    return index


def _permuted(labels: Int[np.ndarray, " n"], draws: int, rng: np.random.Generator) -> np.ndarray:
    """Permutations within groups."""
    index = np.empty((draws, len(labels)), np.int64)
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        index[:, members] = rng.permuted(np.tile(members, (draws, 1)), axis=1)
    return index
