"""Accuracy of two classifiers on the same examples: differences of correlated proportions."""

import functools
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import stats

from spectrope.core import ConfigError
from spectrope.stats.interval import Interval, Intervals, require_level

GAMMA = 0.001  # Chance that the number of discordant pairs is outside of its interval.
NUISANCE = 101  # Grid points of the unknown share.
BISECTIONS = 30
ROUNDING = 1e-9


@dataclass(frozen=True)
class Discordance:
    """Examples on which two classifiers disagree, counted for each of many pairs.

    Args:
        lost: Number of examples that only the first classifier gets right, of any shape.
        gained: Number of examples that only the second gets right, of the same shape.
        n: Number of examples.

    Raises:
        ConfigError: If a count is negative, or two of them exceed the number of examples.
    """

    lost: Int[np.ndarray, "*k"]
    gained: Int[np.ndarray, "*k"]
    n: int

    def __post_init__(self) -> None:
        lost, gained = np.asarray(self.lost), np.asarray(self.gained)
        if lost.size and (min(lost.min(), gained.min()) < 0 or (lost + gained).max() > self.n):
            raise ConfigError(f"{lost} lost and {gained} gained are no counts of {self.n} examples.")

    @classmethod
    def of(cls, first: Bool[np.ndarray, "*#k n"], second: Bool[np.ndarray, "*#k n"]) -> "Discordance":
        """Counts for pairs of classifiers, from whether each is right on each example."""
        both = np.count_nonzero(first & second, axis=-1)
        ahead, behind = np.count_nonzero(first, axis=-1) - both, np.count_nonzero(second, axis=-1) - both
        return cls(np.asarray(ahead), np.asarray(behind), second.shape[-1])

    @property
    def difference(self) -> Float[np.ndarray, "*k"]:
        """First minus second accuracy, as a fraction."""
        return (self.lost - self.gained) / self.n


def difference_intervals(pairs: Discordance, level: float = 0.95) -> Intervals:
    r"""Intervals of the differences in accuracy, as fractions.

    Wald's interval after one example is added to each discordant cell. With :math:`p = (n_{12}+1)/(n+2)`,
    :math:`q = (n_{21}+1)/(n+2)` and :math:`\Delta = p - q`, it is :math:`\Delta \pm z\sqrt{(p + q -
    \Delta^2)/(n+2)}`, which stays wide where no example differs, unlike a bootstrap's.

    References:
        Adjusted Wald Confidence Interval for a Difference of Binomial Proportions Based on Paired Data
        (Bonett and Price, 2012), Eq. 6.
    """
    require_level(level)
    centre, error = _adjusted(pairs)
    half = stats.norm.ppf((1 + level) / 2) * error
    low, high = np.maximum(centre - half, -1.0), np.minimum(centre + half, 1.0)
    return Intervals(
        estimate=pairs.difference, low=low, high=high, level=level, method="adjusted Wald, paired"
    )


def lower_bounds(pairs: Discordance, level: float = 0.95) -> Float[np.ndarray, "*k"]:
    """One-sided lower bounds of the differences, as fractions, from the same approximation."""
    require_level(level)
    centre, error = _adjusted(pairs)
    return np.maximum(centre - stats.norm.ppf(level) * error, -1.0)


def exceedance_p(pairs: Discordance, margin: float) -> Float[np.ndarray, "*k"]:
    """One-sided p-values of "the difference is at most `margin`" (a fraction); inverts `lower_bounds`."""
    centre, error = _adjusted(pairs)
    return stats.norm.sf((centre - margin) / error)


def net_loss_p(lost: int, gained: int, n: int, excess: float) -> tuple[float, float]:
    r"""Exact p-values of "the first is ahead by at least `excess`" and "by at most `excess`" for few pairs.

    Outcomes are ordered by the score statistic, :math:`z = (L - G - n\delta)/\sqrt{n(2\tilde p_G + \delta -
    \delta^2)}` with :math:`\delta` the `excess` and :math:`\tilde p_G` the likeliest share gained under it,
    so that concordant pairs are evidence of a small difference. Under :math:`p_L - p_G = \delta` the
    distribution of the statistic depends on the unknown :math:`p_G`. The p-value is therefore the largest
    over a grid of values of :math:`p_G` that are compatible with the number of discordant pairs at level
    :math:`1 - \gamma`, plus :math:`\gamma = 0.001`; the size of the test does not exceed its level even for
    few pairs.

    Args:
        lost: Number of pairs that only the first gets right.
        gained: Number of pairs that only the second gets right.
        n: Number of pairs.
        excess: Difference of the two shares, from -1 to 1.

    Raises:
        ConfigError: If there is no pair, there are fewer than `lost + gained`, one of these is negative, or
            `excess` does not lie from -1 to 1.

    References:
        Equivalence Test and Confidence Interval for the Difference in Proportions for the Paired-Sample
        Design (Tango, 1998); P Values Maximized over a Confidence Set for the Nuisance Parameter (Berger and
        Boos, 1994).
    """
    if n < max(1, lost + gained) or min(lost, gained) < 0:
        raise ConfigError(f"{n} pairs cannot hold {lost} lost and {gained} gained; at least 1 is needed.")
    if not -1 <= excess <= 1:
        raise ConfigError(f"excess must lie from -1 to 1; got {excess:g}.")
    fewest, highest = _discordant(lost + gained, n)
    least, most = max(abs(excess), fewest), min(1.0, highest)
    if least > most:  # So many discordant pairs are not compatible with those seen.
        return (GAMMA, 1.0) if excess > 0 else (1.0, GAMMA)
    first = (np.linspace(least, most, NUISANCE) - excess) / 2  # Share gained.
    cells = np.stack([first + excess, first, 1 - 2 * first - excess], axis=1).clip(0.0, 1.0)
    outcomes = _outcomes(n)
    chances = stats.multinomial.pmf(outcomes, n, cells[:, None])
    scores, seen = _score(outcomes, excess), _score(np.array([[lost, gained, n - lost - gained]]), excess)
    below = chances[:, scores <= seen + ROUNDING].sum(1).max()
    above = chances[:, scores >= seen - ROUNDING].sum(1).max()
    return float(min(1.0, below + GAMMA)), float(min(1.0, above + GAMMA))


@functools.cache
def _outcomes(n: int) -> Int[np.ndarray, "k 3"]:
    """All numbers of pairs lost, gained and kept."""
    return np.array(
        [(lost, gained, n - lost - gained) for lost in range(n + 1) for gained in range(n + 1 - lost)]
    )


def _score(outcomes: Int[np.ndarray, "k 3"], excess: float) -> Float[np.ndarray, " k"]:
    """The score statistic of each outcome; infinite where the hypothesised difference leaves no variance."""
    lost, gained = outcomes[:, 0], outcomes[:, 1]
    n = outcomes[0].sum()
    linear = -lost - gained + (2 * n - lost + gained) * excess
    root = np.sqrt(np.maximum(linear**2 + 8 * n * gained * excess * (1 - excess), 0.0))
    variance = n * ((root - linear) / (2 * n) + excess * (1 - excess))
    distance = lost - gained - n * excess
    distance = np.where(np.abs(distance) < ROUNDING, 0.0, distance)
    return distance / np.sqrt(np.maximum(variance, ROUNDING**2))


@functools.cache
def _discordant(k: int, n: int) -> tuple[float, float]:
    """Ends of the interval of the share of discordant pairs, k of n; a search asks for one many times."""
    allowed = stats.binomtest(k, n).proportion_ci(1 - GAMMA, method="exact")
    return float(allowed.low), float(allowed.high)


def net_loss_interval(lost: int, gained: int, n: int, level: float = 0.95) -> Interval:
    r"""The differences of the two shares that neither of these tests rejects.

    Since their p-values are at least :math:`\gamma = 0.001`, it is all of [-1, 1] at levels above 0.998.

    Raises:
        ConfigError: If `net_loss_p` refuses the counts, or the level does not lie between 0 and 1.
    """
    require_level(level)
    net_loss_p(lost, gained, n, 0.0)
    alpha, net = (1 - level) / 2, (lost - gained) / n

    def edge(side: int, end: float) -> float:
        if net_loss_p(lost, gained, n, end)[side] > alpha:
            return end
        inside, outside = net, end
        for _ in range(BISECTIONS):
            middle = (inside + outside) / 2
            rejected = net_loss_p(lost, gained, n, middle)[side] <= alpha
            inside, outside = (inside, middle) if rejected else (middle, outside)
        return outside

    return Interval(estimate=net, low=edge(1, -1.0), high=edge(0, 1.0), level=level, method="exact, paired")


def _adjusted(pairs: Discordance) -> tuple[Float[np.ndarray, "*k"], Float[np.ndarray, "*k"]]:
    """Centre and standard error of the adjusted difference."""
    lost, gained = (pairs.lost + 1) / (pairs.n + 2), (pairs.gained + 1) / (pairs.n + 2)
    centre = lost - gained
    return centre, np.sqrt((lost + gained - centre**2) / (pairs.n + 2))
