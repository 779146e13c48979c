"""Claim 26: does dropping RoPE at the end of training make a model work on longer sequences?"""

from collections.abc import Iterator
from dataclasses import replace

import polars as pl

from spectrope.study.arms import Arms, run_of
from spectrope.study.band_arms import BandClaim
from spectrope.study.predictions import AtLeast
from spectrope.study.quantities import Seen, held_out
from spectrope.study.rows import StudyRow
from spectrope.study.verdict import Part

DROPPED = 0.1  # Share of the steps, at the end, without positions.
FACTOR = 2.0  # Length of the sequences, in lengths of training.


class DroppedPositions(BandClaim, name="dropped-positions"):
    """Accuracy on longer sequences with RoPE, and with RoPE that is removed before the end of training."""

    number = 26
    title = "Task 1: on sequences of twice the length, RoPE that was dropped is ahead of RoPE that was kept"
    statement = (
        "Positional encodings are needed to train, not to run: dropped at the end, after a short "
        "recalibration, they leave a model that works on longer sequences."
    )
    source = (
        "Gelberg et al. (2025), Extending the Context of Pretrained LLMs by Dropping Their Positional "
        "Embeddings (DroPE, arXiv 2512.12167), abstract; the test is ours"
    )
    prediction = (
        "held-out accuracy at twice the length, RoPE dropped for the last tenth of the steps minus RoPE > 0"
    )
    test = (
        "2,000 held-out sequences, lengthened by fillers, with the labels of training. Both runs take the "
        "same number of steps. Differences are paired by seed; runs that have not learned the task at the "
        "length of training do not count; a second part compares all runs there. Student's t over seeds."
    )
    tables = ("lengths",)

    def arms(self, condition: str, scale: str, seed: int) -> Arms:
        kept = run_of("distance", "rope", condition, scale, seed)
        return {
            "dropped": replace(kept, training=replace(kept.training, drop_positions=DROPPED)),
            "kept": kept,
        }

    def parts(self, seen: Seen) -> Iterator[Part]:
        yield Part(
            quantity="Task 1, RoPE dropped minus kept, held-out accuracy at twice the length",
            prediction=AtLeast(0.0, null=None),
            values=seen.minus("dropped", "kept", longer_accuracy, only_learned=True),
            beside=_learned(seen),
        )
        yield Part(
            quantity="Task 1, RoPE dropped minus kept, held-out accuracy at the length of training",
            prediction=AtLeast(0.0, null=None),
            values=seen.minus("dropped", "kept", held_out),
        )


def _learned(seen: Seen) -> str:
    """How many runs have learned the task with positions dropped, in words."""
    n, n_learned = (len(seen.values("dropped", held_out, only_learned=only)) for only in (False, True))
    return f"{n_learned} of {n} runs with RoPE dropped learned the task" if n else ""


def longer_accuracy(row: StudyRow) -> float | None:
    """Accuracy at twice the length of training, in percent."""
    table = row.tables.get("lengths")
    scores = [] if table is None else table.filter(pl.col("factor") == FACTOR)["accuracy"].to_list()
    return 100 * scores[0] if scores else None
