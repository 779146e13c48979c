"""Statistical power for the parts of a claim, in standard deviations and in their units."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from spectrope.stats import detectable_difference, detectable_equality, detectable_loss, detectable_proportion
from spectrope.study.predictions import InRuns, LostInRuns, OfMean, Within
from spectrope.study.verdict import Part

NEGLIGIBLE = 1e-6  # Rounding.
FEWEST = 3  # Seeds whose spread is worth telling.
SpreadParts = Sequence[tuple[Part, float]]  # Parts, with standard deviations between seeds.


def power_of(parts: Sequence[Part], n: int) -> str:
    """Effects that n seeds detect with 80 % power, for the deciding part and its premises.

    If parts have values, their spread converts these effects to the units of the parts.
    """
    premises = [part for part in parts if part.premise]
    parts = [part for part in parts if not part.premise]
    kinds = (_of_means, _of_equality, _of_shares, _of_losses)
    lines = [*(line for kind in kinds for line in kind(parts, n)), *_of_premises(premises, n)]
    if not lines:
        return "The power cannot be computed before there are runs."
    return f"With {n} seeds the power is 80 % {'; '.join(lines)}."


def _of_means(parts: Sequence[Part], n: int) -> Iterator[str]:
    means = [(part, part.prediction) for part in parts if isinstance(part.prediction, OfMean)]
    shown = [
        (part, detectable_difference(n, one.level)) for part, one in means if not isinstance(one, Within)
    ]
    if shown:
        yield (
            f"to reproduce the claim if the true mean exceeds the smallest effect of interest by "
            f"{_range(shown)} standard deviations between seeds{_in_units(shown)}"
        )


def _of_equality(parts: Sequence[Part], n: int) -> Iterator[str]:
    equal = [(part, detectable_equality(n)) for part in parts if isinstance(part.prediction, Within)]
    if equal:
        least = _listed({f"{part.prediction.interest:g} {part.prediction.unit}" for part, _ in equal})
        yield (
            f"to show that there is no difference if the true difference is 0 and the smallest effect of "
            f"interest, {least}, is at least {_range(equal)} standard deviations{_in_units(equal)}"
        )


def _of_shares(parts: Sequence[Part], n: int) -> Iterator[str]:
    if any(isinstance(part.prediction, InRuns) for part in parts):
        share = detectable_proportion(n)
        if share is None:
            yield "for no share of runs, neither to reproduce the claim nor to contradict it"
        else:
            most, few = 100 * share, 100 * (1 - share)
            yield (
                f"to reproduce the claim if it holds in {most:.0f} % of all runs, and to contradict it if it "
                f"holds in {few:.0f} %"
            )


def _of_losses(parts: Sequence[Part], n: int) -> Iterator[str]:
    for part in parts:
        if isinstance(part.prediction, LostInRuns):
            unchanged, share = detectable_loss(n, part.prediction.interest)
            kept = "if no run changes" if unchanged else "in no case"
            lost = "in no case" if share is None else f"if {100 * share:.0f} % of runs lose the deposit"
            yield f"to reproduce the claim {kept}, and to contradict it {lost}"


def _of_premises(premises: Sequence[Part], n: int) -> Iterator[str]:
    for part in premises:
        if isinstance(part.prediction, OfMean):
            beyond = [(part, detectable_difference(n, part.prediction.level))]
            yield (
                f"to confirm the premise if its true mean exceeds the threshold by {_range(beyond)} standard "
                f"deviations{_in_units(beyond)}"
            )
        elif isinstance(part.prediction, InRuns):
            share = detectable_proportion(n, beyond=part.prediction.interest)
            runs = (
                "for no share of runs" if share is None else f"if it holds in {100 * share:.0f} % of all runs"
            )
            yield f"to confirm the premise about runs {runs}"


def _in_units(factors: SpreadParts) -> str:
    """Standard deviations in the units of the parts that have values, in brackets."""
    spreads = [
        (part.prediction.unit, factor * float(np.std(list(part.values.values()), ddof=1)))
        for part, factor in factors
        if len(part.values) >= FEWEST
    ]
    units = dict.fromkeys(unit for unit, _ in spreads)
    known = [f"{_ends(size for one, size in spreads if one == unit)} {unit}" for unit in units]
    return f" ({', '.join(known)} by the seeds so far)" if known else ""


def _range(factors: SpreadParts) -> str:
    return _ends(factor for _, factor in factors)


def _ends(values: Iterable[float]) -> str:
    sizes = list(values)
    low, high = (_told(value) for value in (min(sizes), max(sizes)))
    return low if low == high else f"{low} to {high}"


def _listed(words: Iterable[str]) -> str:
    return " or ".join(sorted(words))


def _told(value: float) -> str:
    return "0" if value < NEGLIGIBLE else f"{value:.3g}"
