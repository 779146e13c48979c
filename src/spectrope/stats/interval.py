"""Records of intervals, and correction for multiple tests."""

import math
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from spectrope.core import ConfigError


def require_level(level: float) -> None:
    """Refuse a coverage that is none.

    Raises:
        ConfigError: If it does not lie between 0 and 1.
    """
    if not 0 < level < 1:
        raise ConfigError(f"level must lie between 0 and 1, such as 0.95; got {level:g}.")


@dataclass(frozen=True, kw_only=True)
class Interval:
    """An estimate with its interval, all in the unit of the quantity estimated.

    Args:
        estimate: The estimate.
        low: Lower end.
        high: Upper end.
        level: Nominal probability with which the interval covers the true value.
        method: Name of the method, such as "percentile bootstrap over examples".
    """

    estimate: float
    low: float
    high: float
    level: float
    method: str


@dataclass(frozen=True, kw_only=True)
class Intervals:
    """Intervals of many quantities at once; NaN where a quantity is undefined.

    Args:
        estimate: Estimates, of any shape.
        low: Lower ends, of the same shape.
        high: Upper ends, of the same shape.
        level: Nominal coverage of each single interval, not of all together.
        method: Name of the method.
    """

    estimate: Float[np.ndarray, "*k"]
    low: Float[np.ndarray, "*k"]
    high: Float[np.ndarray, "*k"]
    level: float
    method: str

    def at(self, *index: int) -> Interval | None:
        """One of the intervals as plain numbers, or None where it is undefined."""
        estimate, low, high = (float(values[index]) for values in (self.estimate, self.low, self.high))
        if math.isnan(estimate):
            return None
        return Interval(estimate=estimate, low=low, high=high, level=self.level, method=self.method)

    def scaled(self, factor: int | float) -> "Intervals":
        """The same intervals in a unit that is `factor` times smaller; 100 turns fractions into points."""
        ends = {name: np.asarray(factor * getattr(self, name)) for name in ("estimate", "low", "high")}
        return replace(self, **ends)

    def clipped(
        self, low: float | Float[np.ndarray, " #m"], high: float | Float[np.ndarray, " #m"]
    ) -> "Intervals":
        """The same intervals cut to the range of the quantities along the last axis."""
        return replace(
            self, low=np.asarray(np.maximum(self.low, low)), high=np.asarray(np.minimum(self.high, high))
        )


def ends(name: str, interval: Interval | None) -> dict[str, float | None]:
    """An interval as columns of a table: name, name_low, name_high; None where it is undefined."""
    columns = name, f"{name}_low", f"{name}_high"
    if interval is None:
        return dict.fromkeys(columns)
    return dict(zip(columns, (interval.estimate, interval.low, interval.high), strict=True))


def holm(p: Float[np.ndarray, " m"]) -> Float[np.ndarray, " m"]:
    r"""Holm's adjusted p-values: rejecting at :math:`\alpha` bounds the familywise error rate by it.

    With p-values in ascending order, :math:`\tilde p_{(i)} = \max_{j \le i} \min(1, (m - j + 1)\,p_{(j)})`.
    Valid under any dependence, and never weaker than Bonferroni's. (For the false discovery rate there is
    `scipy.stats.false_discovery_control`.)

    Args:
        p: One p-value per hypothesis.

    Raises:
        ConfigError: If one of them is not a probability.

    References:
        A Simple Sequentially Rejective Multiple Test Procedure (Holm, 1979).
    """
    if not ((p >= 0) & (p <= 1)).all():
        raise ConfigError(f"p-values must lie between 0 and 1; got {p.tolist()}.")
    order = np.argsort(p, kind="stable")
    steps = np.minimum(1.0, p[order] * np.arange(len(p), 0, -1))
    adjusted = np.empty_like(p)
    adjusted[order] = np.maximum.accumulate(steps)
    return adjusted
