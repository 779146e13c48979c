"""Claim 25: do massive values in queries and keys come from RoPE?"""

from collections.abc import Iterator
from statistics import fmean

from spectrope.study.arms import Arms, by_encoding
from spectrope.study.band_arms import BandClaim
from spectrope.study.predictions import AtLeast
from spectrope.study.quantities import Seen
from spectrope.study.rows import StudyRow
from spectrope.study.verdict import Part

SPECTRUM = "spectrum"
MASSIVE = 5.0  # Ratio above which the paper calls a coordinate massive.


class MassiveValues(BandClaim, name="massive-values"):
    """The largest coordinate of queries and keys, with RoPE and without an encoding."""

    number = 25
    title = "Task 1: queries and keys have larger outlying coordinates with RoPE than with NoPE"
    statement = "Massive values of queries and keys are caused by RoPE."
    source = (
        "Jin et al. (2025), Massive Values in Self-Attention Modules are the Key to Contextual Knowledge "
        "Understanding (arXiv 2502.01563), abstract; the test is ours"
    )
    prediction = "largest norm of a coordinate over their mean, mean over heads, RoPE minus NoPE > 0"
    test = (
        "The norm of each coordinate is over the tokens of held-out examples; the larger ratio of queries "
        "and keys counts for a head. Also the share of the heads whose ratio exceeds 5, the paper's "
        "threshold. Differences are paired by seed; runs that have not learned the task do not count. "
        "Student's t over seeds. Heads are 16 wide here, and those of the paper's models 64 to 256."
    )
    tables = (SPECTRUM,)

    def arms(self, condition: str, scale: str, seed: int) -> Arms:
        return by_encoding("distance", condition, scale, seed, ("rope", "nope"))

    def parts(self, seen: Seen) -> Iterator[Part]:
        yield Part(
            quantity="Task 1, RoPE minus NoPE, largest coordinate over their mean",
            prediction=AtLeast(0.0, "ratio", null=None),
            values=seen.minus("rope", "nope", largest_ratio, only_learned=True),
        )
        yield Part(
            quantity="Task 1, RoPE minus NoPE, share of heads with a massive coordinate",
            prediction=AtLeast(0.0, "of the heads", null=None),
            values=seen.minus("rope", "nope", massive_share, only_learned=True),
        )


def largest_ratio(row: StudyRow) -> float | None:
    """Mean over heads of the largest norm of a coordinate over the mean norm, of queries or keys."""
    ratios = _ratios(row)
    return fmean(ratios) if ratios else None


def massive_share(row: StudyRow) -> float | None:
    """Share of the heads of which some coordinate is massive."""
    ratios = _ratios(row)
    return sum(ratio > MASSIVE for ratio in ratios) / len(ratios) if ratios else None


def _ratios(row: StudyRow) -> list[float]:
    table = row.tables.get(SPECTRUM)
    if table is None or "massive_queries" not in table.columns:
        return []
    return [max(pair) for pair in table.select("massive_queries", "massive_keys").iter_rows()]
