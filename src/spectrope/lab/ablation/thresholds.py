"""Thresholds of the deposit rule."""

from dataclasses import dataclass

from spectrope.core import Configured, require

FEWEST_JUDGED = 4  # Examples that are judged: two for each half.


@dataclass(frozen=True, kw_only=True)
class Rule(Configured):
    """Thresholds above which a concentration of drops counts as a deposit."""

    gap: float = 10.0  # Percentage points by which the largest drop must exceed the second.
    share: float = 0.5  # Share of the layer's total drop that the largest must exceed.
    level: float = 0.95  # Confidence level of each bound, and of the results of all layers jointly.

    def __post_init__(self) -> None:
        require(0 <= self.gap < 100, self, "gap", "between 0 and 100 points")
        require(0 <= self.share < 1, self, "share", "a fraction below 1")
        require(0.5 <= self.level < 1, self, "level", "at least 0.5 and below 1")


DEFAULT_RULE = Rule()
