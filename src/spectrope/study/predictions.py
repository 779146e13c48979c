"""What a part of a claim predicts of a quantity with one value per seed, and how seeds weigh on it.

Every prediction has a smallest effect of interest, and two one-sided p-values: `p_holds` of "the prediction
is false" and `p_fails` of "it is true", both at its edge. For means they are those of Student's t-test:
`p_holds` is at most 2.5 % where the whole 95 % interval lies on the side that the prediction says.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy import stats

from spectrope.stats import MIN_SEEDS, Interval, seed_proportion, t_interval

Values = dict[int, float]  # One per seed.
LEVEL = 0.95
ALPHA = (1 - LEVEL) / 2  # Of each one-sided test.


@dataclass(frozen=True)
class Evidence:
    """What some seeds say of a prediction.

    Args:
        interval: The effect, in the unit of the prediction.
        p_holds: One-sided p-value of "the prediction is false".
        p_fails: One-sided p-value of "the prediction is true".
    """

    interval: Interval
    p_holds: float
    p_fails: float


class Prediction(ABC):
    """A statement about a quantity across seeds, with its smallest effect of interest."""

    interest: float
    unit: str

    @property
    def edges(self) -> tuple[float, ...]:
        """Where the prediction ends."""
        return (self.interest,)

    @abstractmethod
    def words(self) -> str:
        """The statement, to follow the name of the quantity."""

    @abstractmethod
    def weigh(self, values: Float[np.ndarray, " s"]) -> Evidence:
        """What values say, one per seed, at least two of them."""


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
    def p_values(self, values: Float[np.ndarray, " s"]) -> tuple[float, float]:
        """Of "the prediction is false", then of "it is true"."""

    def weigh(self, values: Float[np.ndarray, " s"]) -> Evidence:
        return Evidence(t_interval(values, self.level), *self.p_values(values))


@dataclass(frozen=True)
class AtLeast(OfMean):
    """The mean over seeds is at least `interest`.

    Where it says so of some of several candidates, the values are those of the largest. `tried` says how many
    there are: the interval and `p_holds` are corrected by Bonferroni. `others` are the values of the rest:
    none of them may reach `interest` either where the prediction is to fail, and one with fewer values than a
    verdict takes leaves that open.
    """

    tried: int = 1
    others: tuple[tuple[float, ...], ...] = ()

    @classmethod
    def of_some(
        cls, interest: float, chosen: str, candidates: Mapping[str, Values], unit: str = "points"
    ) -> "AtLeast":
        """The same of some candidate, judged by the values of a chosen one, the `largest`."""
        others = tuple(tuple(one.values()) for name, one in candidates.items() if name != chosen)
        return cls(interest, unit, tried=max(1, len(candidates)), others=others)

    @property
    def level(self) -> float:
        return 1 - (1 - LEVEL) / self.tried

    def words(self) -> str:
        return f"at least {self.interest:g} {self.unit}"

    def p_values(self, values: Float[np.ndarray, " s"]) -> tuple[float, float]:
        above, below = one_sided(values, self.interest)
        short = [
            one_sided(np.array(one), self.interest)[1] if len(one) >= MIN_SEEDS else 1.0
            for one in self.others
        ]
        return min(1.0, self.tried * above), max([below, *short])


@dataclass(frozen=True)
class AtMost(OfMean):
    """The mean over seeds is at most `interest`."""

    def words(self) -> str:
        return f"at most {self.interest:g} {self.unit}"

    def p_values(self, values: Float[np.ndarray, " s"]) -> tuple[float, float]:
        above, below = one_sided(values, self.interest)
        return below, above


@dataclass(frozen=True)
class Within(OfMean):
    """The mean over seeds is at most `interest` away from 0, either way: two one-sided tests."""

    def words(self) -> str:
        return f"within {self.interest:g} {self.unit} of 0"

    @property
    def edges(self) -> tuple[float, ...]:
        return (-self.interest, self.interest)

    def p_values(self, values: Float[np.ndarray, " s"]) -> tuple[float, float]:
        over, under = one_sided(values, self.interest)
        right, left = one_sided(values, -self.interest)
        return max(under, right), min(over, left)


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


def largest(candidates: Mapping[str, Values]) -> str:
    """The candidate of largest mean, among those with as many seeds as a verdict takes if there are any."""

    def rank(name: str) -> tuple[bool, float]:
        values = list(candidates[name].values())
        return len(values) >= MIN_SEEDS, float(np.mean(values)) if values else -np.inf

    return max(candidates, key=rank, default="some")


def one_sided(values: Float[np.ndarray, " s"], threshold: float) -> tuple[float, float]:
    """p-values of "the mean is at most the threshold" and of "it is at least the threshold"."""
    if np.ptp(values) == 0:
        difference = float(values[0]) - threshold
        return (0.0, 1.0) if difference > 0 else (1.0, 0.0) if difference < 0 else (0.5, 0.5)
    above = float(stats.t.sf((values.mean() - threshold) / stats.sem(values), len(values) - 1))
    return above, 1.0 - above
