"""What a number of seeds can show of a claim's parts, in standard deviations and in the parts' own units."""

from collections.abc import Sequence

import numpy as np

from spectrope.claims.predictions import ALPHA, InRuns, OfMean
from spectrope.claims.verdict import Part
from spectrope.stats.power import detectable_difference, detectable_proportion

NEGLIGIBLE = 1e-6  # Rounding.
FEWEST = 3  # Seeds whose spread is worth telling.


def power_of(parts: Sequence[Part], n: int) -> str:
    """What n seeds show four times in five: of parts that hold, and of parts that fail.

    A part fails after Holm's correction, of which the first step is the strictest. Where parts have values,
    their spread says what that is in their units.
    """
    parts = [part for part in parts if not part.premise]
    shares = sum(isinstance(part.prediction, InRuns) for part in parts)
    told = [*_of_means(parts, n), *_of_shares(shares, n, len(parts))]
    if not told:
        return "No part can be told before there are runs."
    return f"{n} seeds show, four times in five, {'; '.join(told)}."


def _of_means(parts: Sequence[Part], n: int) -> list[str]:
    means = [(part, part.prediction) for part in parts if isinstance(part.prediction, OfMean)]
    if not means:
        return []
    own = [part for part, _ in means]
    holds = [detectable_difference(n, prediction.level) for _, prediction in means]
    fails = [detectable_difference(n, 1 - 2 * ALPHA / len(parts))] * len(means)
    told = (
        f"that a part holds where its mean lies {_range(holds)} standard deviations between seeds beyond "
        f"the smallest effect of interest, and fails where it lies {_range(fails)} short of it"
    )
    known = [
        f"{_range(ours)} and {_range(theirs)} {unit}"
        for unit in dict.fromkeys(prediction.unit for _, prediction in means)
        for ours, theirs in [[_in_unit(own, unit, factors) for factors in (holds, fails)]]
        if ours
    ]
    return [f"{told} ({', '.join(known)}, by the spread of the seeds that there are)" if known else told]


def _of_shares(parts: int, n: int, tests: int) -> list[str]:
    if not parts:
        return []
    holds, fails = detectable_proportion(n), detectable_proportion(n, 1 - 2 * ALPHA / tests)
    most = "no majority" if holds is None else f"a majority of {100 * holds:.0f} %"
    few = "no minority" if fails is None else f"a minority of {100 * (1 - fails):.0f} %"
    return [f"that a part about most runs holds for {most} and fails for {few}"]


def _in_unit(parts: Sequence[Part], unit: str, factors: Sequence[float]) -> list[float]:
    """Standard deviations times factors, of parts in a unit that have values."""
    return [
        factor * float(np.std(list(part.values.values()), ddof=1))
        for part, factor in zip(parts, factors, strict=True)
        if part.prediction.unit == unit and len(part.values) >= FEWEST
    ]


def _range(values: Sequence[float]) -> str:
    low, high = (_told(value) for value in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"


def _told(value: float) -> str:
    return "0" if value < NEGLIGIBLE else f"{value:.3g}"
