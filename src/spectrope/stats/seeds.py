"""Inference across training runs, with the seed as the unit of analysis."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float
from scipy import stats

from spectrope.core import ConfigError
from spectrope.stats.interval import Interval, require_level

MIN_SEEDS = 6  # The smallest n at which n of n has a two-sided sign-test p-value (2 ** (1 - n)) below 0.05.

Outcome = Literal["holds", "fails", "inconclusive"]


@dataclass(frozen=True, kw_only=True)
class SeedProportion:
    """Proportion of training runs that show an effect.

    Args:
        count: Number of runs that show the effect.
        n_seeds: Number of runs.
        proportion: Clopper-Pearson interval of the probability that a run shows the effect.
        verdict: "holds" if the interval lies above one half, "fails" if it lies below, else "inconclusive";
            always "inconclusive" with fewer than `MIN_SEEDS` seeds.
    """

    count: int
    n_seeds: int
    proportion: Interval
    verdict: Outcome


def seed_proportion(shown: list[bool], level: float = 0.95) -> SeedProportion:
    """Whether the majority of training runs shows an effect; one entry of `shown` per seed.

    Raises:
        ConfigError: If there is no run at all, or the level does not lie between 0 and 1.
    """
    require_level(level)
    if not shown:
        raise ConfigError("a statement across seeds needs at least one run; got none.")
    count, n = sum(shown), len(shown)
    exact = stats.binomtest(count, n).proportion_ci(level, method="exact")
    ends = {"low": float(exact.low), "high": float(exact.high)}
    interval = Interval(estimate=count / n, **ends, level=level, method="Clopper-Pearson over seeds")
    verdict: Outcome = "holds" if interval.low > 0.5 else "fails" if interval.high < 0.5 else "inconclusive"
    return SeedProportion(
        count=count, n_seeds=n, proportion=interval, verdict=verdict if n >= MIN_SEEDS else "inconclusive"
    )


def t_interval(values: Float[np.ndarray, " s"], level: float = 0.95) -> Interval:
    """Student's interval of the mean over seeds.

    Raises:
        ConfigError: If there are fewer than two values, or the level does not lie between 0 and 1.
    """
    require_level(level)
    _check(values)
    error = float(stats.sem(values))
    half = float(stats.t.ppf((1 + level) / 2, len(values) - 1)) * error
    mean = float(values.mean())
    return Interval(estimate=mean, low=mean - half, high=mean + half, level=level, method="t over seeds")


def _check(values: np.ndarray) -> None:
    if len(values) < 2:
        raise ConfigError(f"an interval over seeds needs at least 2 values; got {len(values)}.")
