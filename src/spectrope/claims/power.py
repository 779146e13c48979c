"""What a number of seeds can show of a claim's parts, in standard deviations and in the parts' own units."""

from collections.abc import Sequence

import numpy as np

from spectrope.claims.predictions import ALPHA, InMost, OfMean
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
    means = [part for part in parts if isinstance(part.prediction, OfMean)]
    others = [part for part in parts if isinstance(part.prediction, InMost)]
    told = [*_of_means(means, n, len(parts)), *_of_shares(others, n, len(parts))]
    return f"{n} seeds show, four times in five, {'; '.join(told)}."


def _of_means(parts: Sequence[Part], n: int, tests: int) -> list[str]:
    if not parts:
        return []
    holds, fails = detectable_difference(n), detectable_difference(n, 1 - 2 * ALPHA / tests)
    told = (
        f"that a part holds where its mean lies {holds:.2f} standard deviations between seeds beyond the "
        f"smallest effect of interest, and fails where it lies {fails:.2f} short of it"
    )
    units = dict.fromkeys(part.prediction.unit for part in parts)
    spreads = {
        unit: [s for part in parts if part.prediction.unit == unit for s in _spread(part)] for unit in units
    }
    known = [
        f"{_range(holds, found)} and {_range(fails, found)} {unit}"
        for unit, found in spreads.items()
        if found
    ]
    return [f"{told} ({', '.join(known)}, by the spread of the seeds that there are)" if known else told]


def _of_shares(parts: Sequence[Part], n: int, tests: int) -> list[str]:
    if not parts:
        return []
    holds, fails = detectable_proportion(n), detectable_proportion(n, 1 - 2 * ALPHA / tests)
    most = "no majority" if holds is None else f"a majority of {100 * holds:.0f} %"
    few = "no minority" if fails is None else f"a minority of {100 * (1 - fails):.0f} %"
    return [f"that a part about most runs holds for {most} and fails for {few}"]


def _spread(part: Part) -> list[float]:
    values = list(part.values.values())
    return [float(np.std(values, ddof=1))] if len(values) >= FEWEST else []


def _range(factor: float, spreads: Sequence[float]) -> str:
    low, high = (
        f"{factor * spread:.2g}" if factor * spread >= NEGLIGIBLE else "0"
        for spread in (min(spreads), max(spreads))
    )
    return low if low == high else f"{low} to {high}"
