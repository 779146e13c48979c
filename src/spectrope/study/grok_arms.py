"""Runs and quantities shared by the claims of the second paper."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import polars as pl

from spectrope.core import UnknownNameError
from spectrope.encodings import Learned
from spectrope.grokking import (
    Distribution,
    GrokExperiment,
    GrokTraining,
    ModularConfig,
    ModularTransformer,
    Random,
    Square,
    Strip,
)
from spectrope.lab import SCALES
from spectrope.study.claim import Claim
from spectrope.study.quantities import Quantity
from spectrope.study.rows import StudyRow

BEYOND = "Beyond Progress Measures (arXiv 2504.03162)"
ABSTRACT = f"{BEYOND}, by its abstract, its public code, and a summary of the text, which is not at hand"
NOT_AT_HAND = "its numbers are not at hand"
SIDES = (40, 50, 60, 67)  # The paper's k, at p = 97.
PAPER_P = 97
MODULUS: Mapping[str, int] = {"mini": 59, "small": 97, "mid": 97, "paper": 97}
STEPS: Mapping[str, int] = {"mini": 4_000, "small": 10_000, "mid": 30_000, "paper": 30_000}
# p = 59 is slow to grok on less.
SHARE: Mapping[str, float] = {
    "mini": 0.5,
    "small": 0.3,
    "mid": 0.3,
    "paper": 0.3,
}
HELD = {"square": Square, "strip": Strip}


class GrokClaim(Claim):
    """Base of the claims on grokking, with the settings of the paper's public code at a scale."""

    article = BEYOND
    conditions = ("described",)
    unplanned = "A claim of the second paper: the switches between conditions are those of the first."
    explored = 12  # Steps were raised on seeds 0 to 5 of mini, parts and measures corrected on 6 to 11.
    paper = NOT_AT_HAND

    def setting(self, scale: str) -> str:
        """As the claim's runs on random pairs have it."""
        one = base(scale, 0)
        task, training = one.task, one.training
        return (
            f"modulus {task.p}, one layer, {100 * task.fraction:.0f} % of all pairs train, "
            f"{training.steps:,} steps, an evaluation every {training.evaluate_every}; the public code has "
            f"{PAPER_P}, one layer or two, 30 or 50 %, and {STEPS['paper']:,} steps"
        )


def base(scale: str, seed: int, **training: float) -> GrokExperiment:
    """Addition learned from random pairs.

    Raises:
        UnknownNameError: If there is no such scale.
    """
    return on(Random(), scale, seed, **training)


def held(kind: str, k: int, scale: str, seed: int) -> GrokExperiment:
    """Addition learned without a square or a strip of operands up to the paper's k, scaled."""
    return on(HELD[kind](k=scaled(k, scale)), scale, seed)


def as_many(kind: str, k: int, scale: str, seed: int) -> GrokExperiment:
    """Addition from as many random pairs as `held` leaves; `base` where those are as many."""
    one, other = base(scale, seed), held(kind, k, scale, seed)
    usual, n = (len(each.task.build().split(seed).train) for each in (one, other))
    return one if n == usual else replace(one, task=replace(one.task, fraction=n / one.task.p**2))


def on(distribution: Distribution, scale: str, seed: int, **training: float) -> GrokExperiment:
    """Addition learned from the training pairs of a distribution, as with the same options of `spectrope
    grok`. All runs use the full number of steps, so that they are compared after equally many.

    Raises:
        UnknownNameError: If there is no such scale.
    """
    if scale not in MODULUS:
        raise UnknownNameError("scale", scale, SCALES)
    width = ModularTransformer.Config.d_model
    encoding = Learned.Config(std=width**-0.5).fitted(seed=seed)
    return GrokExperiment(
        task=ModularConfig(p=MODULUS[scale], distribution=distribution, fraction=SHARE[scale]),
        model=ModularTransformer.Config(n_layers=1, encoding=encoding),
        training=GrokTraining(steps=STEPS[scale], stop=None, **training),  # pyright: ignore[reportArgumentType]
        seed=seed,
    )


def scaled(k: int, scale: str) -> int:
    """A bound on operands of the paper, in proportion to the modulus of a scale."""
    return round(k * MODULUS[scale] / PAPER_P)


def last(column: str, factor: float = 1.0) -> Quantity:
    """A column of the progress table at the last evaluation, times a factor."""
    return partial(_last, column=column, factor=factor)


def rise(column: str) -> Quantity:
    """Increase of a column from the first evaluation to the last."""
    return partial(_rise, column=column)


def course(row: StudyRow, *columns: str) -> pl.DataFrame | None:
    """The progress table of a run, if the row has it with these columns."""
    table = row.tables.get("progress")
    return table if table is not None and set(columns) <= set(table.columns) else None


def _last(row: StudyRow, column: str, factor: float) -> float | None:
    table = course(row, column)
    value = None if table is None else table[column][-1]
    return None if value is None else factor * value


def _rise(row: StudyRow, column: str) -> float | None:
    table = course(row, column)
    ends = (None, None) if table is None else (table[column][0], table[column][-1])
    return None if ends[0] is None or ends[1] is None else ends[1] - ends[0]
