"""Runs and quantities shared by the claims about language models, as docs/explanation/atlas-plan.md says."""

from collections.abc import Collection, Mapping
from functools import partial

import polars as pl

from spectrope.checkpoints import RepeatedTokens
from spectrope.core import UnknownNameError
from spectrope.lab import SCALES
from spectrope.study.band_arms import LOST, OpenQuestion
from spectrope.study.quantities import LEARNED, Quantity
from spectrope.study.rows import StudyRow

GROUPS = "head-groups"
N_LAYERS: Mapping[str, int] = {"mini": 4, "small": 4, "mid": 6, "paper": 12}
MEASURED = (
    "Llamas with 16 pairs per head and base 100, whose weights and data are drawn from the seed, are trained "
    "on sequences of 64 random tokens that repeat, each with a period of its own, until 96 % of the repeated "
    "tokens are predicted. Heads are grouped by where at least 30 % of their attention lies on 256 new "
    "sequences. All heads of the group are changed together, band by band (4 bands), and scored on 512 "
    "further ones. Models that predict less than half of the repeated tokens, or whose bands cost less than "
    "5 points in all, do not count. Student's t over seeds."
)  # How claims 27 and 28 are decided.


class LanguageClaim(OpenQuestion):
    """Base of the claims about language models: Llamas on repeated random tokens."""

    def arms(self, condition: str, scale: str, seed: int) -> dict[str, RepeatedTokens]:
        if scale not in N_LAYERS:
            raise UnknownNameError("scale", scale, SCALES)
        return {"llama": RepeatedTokens(n_layers=N_LAYERS[scale], seed=seed)}


def band_share(group: str, intervention: str, bands: Collection[int]) -> Quantity:
    """Share of some bands in the drops of all bands, over the heads of a group.

    Negative drops count as 0. None where the model has not learned its task, or drops sum to less than 5
    points.

    Args:
        group: "previous-token" or "induction".
        intervention: "remove-band" or "silence-band".
        bands: Numbers of the bands, the highest frequencies first.
    """
    return partial(_share, group=group, intervention=intervention, bands=frozenset(bands))


def _share(row: StudyRow, group: str, intervention: str, bands: frozenset[int]) -> float | None:
    table, accuracy = row.tables.get(GROUPS), row.facts["test_accuracy"]
    if table is None or accuracy is None or accuracy < LEARNED:
        return None
    cells = table.filter(group=group, intervention=intervention).with_columns(pl.col("drop").clip(0))
    total = sum(cells["drop"])
    return None if total < LOST else sum(cells.filter(pl.col("band").is_in(bands))["drop"]) / total
