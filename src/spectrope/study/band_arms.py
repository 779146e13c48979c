"""Runs and quantities shared by the claims about frequency bands, as docs/explanation/atlas-plan.md has them.

A position head is one whose cell `content-only` of the atlas costs more than the atlas's threshold.
"""

from statistics import fmean

import polars as pl

from spectrope.study.arms import Arms, run_of
from spectrope.study.claim import Claim
from spectrope.study.rows import StudyRow

ATLAS, HEADS = "atlas", "atlas-heads"
QUESTIONS = "Open questions about positional encodings"
FEWEST = 5  # Runs that have the quantity of a question; fewer decide nothing.
LOST = 5.0  # Points that the bands of the position heads must cost together for shares to be defined.
DEPOSITED = (0, 1)  # Layers where a deposit is looked for.
BANDED = (
    "`spectrope atlas` removes the rotation of each of 4 bands of each head, on 2,000 held-out examples. "
    "Drops of the position heads, those that cost more than 5 points without their positions, are "
    "summed per band. "
    "Runs that have not learned the task, or whose bands cost less than 5 points in all, do not count. "
    "Student's t over seeds. At most one of claims 19 and 20 can be reproduced. Sequences of `mini` have "
    "at most 32 tokens, over which pairs of bands 2 and 3 complete less than a twentieth of a turn: that "
    "they cost nothing says little of longer texts."
)  # How claims 19 and 20 are decided.


class OpenQuestion(Claim):
    """Base of the claims that ask open questions, by a plan of their own, with seeds from 100."""

    article = QUESTIONS
    plan_page = "atlas-plan.md"
    ours = True
    paper = "no number"
    conditions = ("controlled",)
    unplanned = "The questions are about the encodings, not about the paper's public code."
    minimum_seeds = FEWEST
    explored = 100  # Where the seeds of the plan begin.


class BandClaim(OpenQuestion):
    """Base of the claims about frequency bands in Task 1, without the confounds."""

    tables = (ATLAS,)

    def arms(self, condition: str, scale: str, seed: int) -> Arms:
        return {"rope": run_of("distance", "rope", condition, scale, seed)}


class PartialClaim(BandClaim):
    """The same with partial rotation beside it."""

    def arms(self, condition: str, scale: str, seed: int) -> Arms:
        return {name: run_of("distance", name, condition, scale, seed) for name in ("partial_dims", "rope")}


def position_heads(row: StudyRow) -> pl.DataFrame | None:
    """Layers and numbers of the position heads; None without an atlas."""
    atlas = row.tables.get(ATLAS)
    if atlas is None:
        return None
    costly = (pl.col("intervention") == "content-only") & (pl.col("call") == "costs")
    return atlas.filter(costly).select("layer", "head")


def shares(row: StudyRow) -> list[float] | None:
    """What each band has of the drops of `remove-band` over the position heads, band by band."""
    drops = _band_drops(row, "remove-band")
    total = sum(drops)
    return None if total < LOST else [drop / total for drop in drops]


def high_share(row: StudyRow) -> float | None:
    """Share of band 0, which has the highest frequencies."""
    found = shares(row)
    return None if found is None else found[0]


def effective_bands(row: StudyRow) -> float | None:
    r"""The effective number of bands, :math:`1 / \sum_b s_b^2`, between 1 and the number of bands."""
    found = shares(row)
    return None if found is None else 1 / sum(share**2 for share in found)


def explained_by_sink(row: StudyRow) -> float | None:
    """Share of the drops of `remove-band` that is gone where logits of the first token stay as they are."""
    total = sum(_band_drops(row, "remove-band"))
    return None if total < LOST else 1 - sum(_band_drops(row, "remove-band-off-sink")) / total


def mean_lag(row: StudyRow) -> float | None:
    """Mean lag of the position heads, weighted by attention, in positions; None without such heads."""
    heads, chosen = row.tables.get(HEADS), position_heads(row)
    if heads is None or chosen is None or chosen.is_empty():
        return None
    return fmean(heads.join(chosen, on=["layer", "head"])["reach"])


def concentration(row: StudyRow) -> float | None:
    """Share of the largest drop of `zero` in the sum over its layer, mean over layers 0 and 1.

    Negative drops count as 0. A layer without a positive drop has no share.
    """
    atlas = row.tables.get(ATLAS)
    if atlas is None:
        return None
    zeroed = atlas.filter(pl.col("intervention") == "zero").with_columns(pl.col("drop").clip(0))
    layers = [zeroed.filter(pl.col("layer") == layer)["drop"].to_list() for layer in DEPOSITED]
    found = [max(drops) / sum(drops) for drops in layers if sum(drops) > 0]
    return fmean(found) if found else None


def _band_drops(row: StudyRow, intervention: str) -> list[float]:
    """Drops of an intervention per band, summed over the position heads; negative ones count as 0."""
    atlas, chosen = row.tables.get(ATLAS), position_heads(row)
    if atlas is None or chosen is None:
        return []
    cells = atlas.filter(pl.col("intervention") == intervention).join(chosen, on=["layer", "head"])
    sums = cells.group_by("band").agg(pl.col("drop").clip(0).sum()).sort("band")
    return sums["drop"].to_list()
