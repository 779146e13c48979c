"""Predictions of claims for quantities with one value per seed, and their tests.

Every prediction has a smallest effect of interest, and one-sided p-values of the null hypotheses that must be
rejected for it to be reproduced, to be right only in direction, or to be contradicted. For means they are
those of Student's t-test: `p_reproduced` is at most 2.5 % where the 95 % interval lies beyond the smallest
effect. All are compared with the same level, so that no verdict is easier to reach than its opposite.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float
from scipy import stats

from spectrope.stats import (
    MIN_SEEDS,
    Interval,
    net_loss_interval,
    net_loss_p,
    seed_proportion,
    t_interval,
)

Values = dict[int, float]  # One per seed.
LEVEL = 0.95
ALPHA = (1 - LEVEL) / 2  # Of each one-sided test.
CORRELATIONS = ("r", "rho")  # Units of quantities between -1 and 1.


@dataclass(frozen=True)
class Evidence:
    """Evidence of some seeds about a prediction.

    Args:
        interval: The effect, in the unit of the prediction.
        p_reproduced: One-sided p-value of "the effect is short of the smallest one of interest".
        p_contradicted: p-value for rejecting the prediction: the effect has the opposite sign, or is too
            small.
        p_direction: Of "there is no effect in that direction"; 1 where the prediction has no direction.
    """

    interval: Interval
    p_reproduced: float
    p_contradicted: float
    p_direction: float = 1.0


class Prediction(ABC):
    """A statement about a quantity across seeds, with its smallest effect of interest."""

    interest: float
    unit: str
    null: float | None = None  # No effect; None where the prediction is a bound and has no direction.

    @property
    def edges(self) -> tuple[float, ...]:
        """Where the prediction ends."""
        return (self.interest,)

    @property
    def candidates(self) -> int:
        """Number of quantities from which the judged one was selected by its results; 1 if it was fixed in
        advance."""
        return 1

    @abstractmethod
    def words(self) -> str:
        """The statement, to follow the name of the quantity."""

    @abstractmethod
    def weigh(self, values: Float[np.ndarray, " s"]) -> Evidence:
        """Weigh the evidence of values, one per seed, at least two."""


@dataclass(frozen=True)
class OfMean(Prediction):
    """A prediction of the mean over seeds."""

    interest: float
    unit: str = "points"

    @property
    def level(self) -> float:
        """Of the interval."""
        return LEVEL

    @abstractmethod
    def p_values(self, values: Float[np.ndarray, " s"]) -> tuple[float, float, float]:
        """Of reproduced, contradicted and direction, as `Evidence` has them."""

    def weigh(self, values: Float[np.ndarray, " s"]) -> Evidence:
        return Evidence(_possible(t_interval(values, self.level), self.unit), *self.p_values(values))


@dataclass(frozen=True)
class AtLeast(OfMean):
    """The mean over seeds is at least `interest`.

    Where it says so of some of several candidates, the values are those of the largest. `tried` says how many
    there are: the interval and what speaks for the prediction are corrected by Bonferroni. `others` are the
    values of the rest: each of them has to contradict the prediction too where it is to be contradicted, and
    one with fewer values than a verdict takes leaves that open. `null` None makes it a bound.
    """

    tried: int = 1
    others: tuple[tuple[float, ...], ...] = ()
    null: float | None = 0.0

    @classmethod
    def of_some(
        cls, interest: float, chosen: str, candidates: Mapping[str, Values], unit: str = "points"
    ) -> "AtLeast":
        """The same of some candidate, judged by the values of a chosen one, the `largest`."""
        others = tuple(tuple(one.values()) for name, one in candidates.items() if name != chosen)
        return cls(interest, unit, tried=max(1, len(candidates)), others=others)

    @property
    def candidates(self) -> int:
        return self.tried

    @property
    def level(self) -> float:
        return 1 - (1 - LEVEL) / self.tried

    def words(self) -> str:
        return f"at least {self.interest:g} {self.unit}"

    def p_values(self, values: Float[np.ndarray, " s"]) -> tuple[float, float, float]:
        reproduced, contradicted, direction = upward(values, self.interest, self.null)
        rest = [
            upward(np.array(one), self.interest, self.null)[1] if len(one) >= MIN_SEEDS else 1.0
            for one in self.others
        ]
        return min(1.0, self.tried * reproduced), max([contradicted, *rest]), min(1.0, self.tried * direction)


@dataclass(frozen=True)
class AtLeastEach(OfMean):
    """The mean over seeds is at least `interest` against each of several rivals, fixed for all seeds.

    The values are the margins over the nearest rival, and `others` those over the rest. Each margin has to be
    reproduced, or right in direction, for the prediction to be: an intersection–union test, which needs no
    correction. One that is contradicted contradicts it, at a level corrected for their number (Bonferroni).
    The interval is that of the nearest, uncorrected for the choice: among five rivals that are alike, it
    covers the true margin in 92 % of cases rather than in 95 % (simulated, six seeds).
    """

    others: tuple[tuple[float, ...], ...] = ()

    @classmethod
    def of_margins(
        cls, interest: float, unit: str, margins: Mapping[str, Values]
    ) -> tuple[str, "AtLeastEach"]:
        """The nearest rival by the mean over seeds, and the prediction that is judged by its margins."""
        near = nearest(margins)
        others = tuple(tuple(one.values()) for name, one in margins.items() if name != near)
        return near, cls(interest, unit, others)

    @property
    def candidates(self) -> int:
        return 1 + len(self.others)

    def words(self) -> str:
        return f"at least {self.interest:g} {self.unit} over each"

    def p_values(self, values: Float[np.ndarray, " s"]) -> tuple[float, float, float]:
        margins = [values, *(np.array(one) for one in self.others)]
        tested = [upward(one, self.interest, 0.0) if len(one) > 1 else (1.0, 1.0, 1.0) for one in margins]
        reproduced, contradicted, direction = zip(*tested, strict=True)
        return max(reproduced), min(1.0, len(margins) * min(contradicted)), max(direction)


@dataclass(frozen=True)
class AtMost(OfMean):
    """The mean over seeds is at most `interest`; with `null`, that much below no effect."""

    null: float | None = None

    def words(self) -> str:
        return f"at most {self.interest:g} {self.unit}"

    def p_values(self, values: Float[np.ndarray, " s"]) -> tuple[float, float, float]:
        return upward(-values, -self.interest, None if self.null is None else -self.null)


@dataclass(frozen=True)
class Within(OfMean):
    """The mean over seeds is at most `interest` away from 0, either way: two one-sided tests."""

    def words(self) -> str:
        return f"within {self.interest:g} {self.unit} of 0"

    @property
    def edges(self) -> tuple[float, ...]:
        return (-self.interest, self.interest)

    def p_values(self, values: Float[np.ndarray, " s"]) -> tuple[float, float, float]:
        over, under = one_sided(values, self.interest)
        right, left = one_sided(values, -self.interest)
        return max(under, right), min(over, left), 1.0


@dataclass(frozen=True)
class InRuns(Prediction):
    """The quantity, 1 or 0, is 1 in more than a share of all runs, by default in most."""

    interest: float = 0.5
    unit: str = "of runs"

    def words(self) -> str:
        return (
            f"in more than {'half' if self.interest == 0.5 else f'{100 * self.interest:.0f} %'} of all runs"
        )

    def weigh(self, values: Float[np.ndarray, " s"]) -> Evidence:
        shown = seed_proportion([bool(value) for value in values], LEVEL)
        n = shown.n_seeds
        above = float(stats.binom.sf(shown.count - 1, n, self.interest))
        return Evidence(shown.proportion, above, float(stats.binom.cdf(shown.count, n, self.interest)))


@dataclass(frozen=True)
class LostInRuns(Prediction):
    r"""An event is lost in at most a share `interest` more of runs than it is gained, with the same seeds.

    A value is 1 where a seed shows the event without a treatment and not with it, -1 where it is the other
    way round, else 0. Intervals and p-values are of the difference of the two shares over all seeds, exact
    for few pairs (`spectrope.stats.net_loss_p`).
    """

    interest: float = 0.2
    unit: str = "of runs lost"

    def words(self) -> str:
        return f"in at most {100 * self.interest:.0f} % of runs"

    def weigh(self, values: Float[np.ndarray, " s"]) -> Evidence:
        lost, gained, n = int(np.sum(values > 0)), int(np.sum(values < 0)), len(values)
        fewer, more = net_loss_p(lost, gained, n, self.interest)
        return Evidence(net_loss_interval(lost, gained, n, LEVEL), fewer, more)


def _possible(interval: Interval, unit: str) -> Interval:
    """An interval without the values that a correlation cannot take, which covers it no less often."""
    if unit not in CORRELATIONS:
        return interval
    low, high = (float(np.clip(end, -1.0, 1.0)) for end in (interval.low, interval.high))
    return replace(interval, low=low, high=high)


def largest(candidates: Mapping[str, Values]) -> str:
    """The candidate of largest mean, among those with as many seeds as a verdict takes if there are any."""

    def rank(name: str) -> tuple[bool, float]:
        values = list(candidates[name].values())
        return len(values) >= MIN_SEEDS, float(np.mean(values)) if values else -np.inf

    return max(candidates, key=rank, default="some")


def nearest(margins: Mapping[str, Values]) -> str:
    """The rival of smallest mean margin among those that have any."""
    means = {name: float(np.mean(list(values.values()))) for name, values in margins.items() if values}
    return min(means, key=means.__getitem__, default=next(iter(margins), "none"))


def upward(
    values: Float[np.ndarray, " s"], interest: float, null: float | None
) -> tuple[float, float, float]:
    """p-values of reproduced, contradicted and direction for "the mean is at least `interest`".

    Contradicted is below `null`, or nearer to it than `interest` on either side: whichever is surer. Both lie
    below `interest`, so that either is found with at most the level's chance where the prediction is true.
    """
    reproduced, short = one_sided(values, interest)
    if null is None:
        return reproduced, short, 1.0
    direction, below = one_sided(values, null)
    small = max(short, one_sided(values, 2 * null - interest)[0])
    return reproduced, min(below, small), direction


def one_sided(values: Float[np.ndarray, " s"], threshold: float) -> tuple[float, float]:
    """p-values of "the mean is at most the threshold" and of "it is at least the threshold".

    By Student's t; if all seeds agree exactly, a sign test is used instead, so that no p-value is 0.
    """
    if np.ptp(values) == 0:
        difference, sign = float(values[0]) - threshold, 0.5 ** len(values)
        return (sign, 1.0) if difference > 0 else (1.0, sign) if difference < 0 else (1.0, 1.0)
    above = float(stats.t.sf((values.mean() - threshold) / stats.sem(values), len(values) - 1))
    return above, 1.0 - above
