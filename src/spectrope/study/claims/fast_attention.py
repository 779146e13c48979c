"""Claim 17: is RoPE attention with bounded entries computed in almost linear time?"""

from collections.abc import Iterator, Mapping
from math import log

import polars as pl

from spectrope.lab import AnyExperiment, Experiment
from spectrope.study.arms import by_encoding
from spectrope.study.claim import Claim
from spectrope.study.predictions import AtLeast, AtMost
from spectrope.study.quantities import Seen, held_out
from spectrope.study.rows import StudyRow
from spectrope.study.verdict import Part

TABLE = "attention-plan"
HALF = 0.5  # Least share of the heads that must gain.
ALMOST = 1.1  # Largest exponent of the cost in the length that counts as almost linear.
SMALL = 10.0  # Points of accuracy that bounded logits may cost.


class FastAttention(Claim, name="fast-attention"):
    """Heads with bounded logits: certificates, predicted cost, and what the bound costs in accuracy."""

    number = 17
    article = "Fast RoPE Attention (Alman and Song, arXiv 2505.11892)"
    title = "Fast attention: half of the heads with bounded logits are predicted to gain"
    ours = True
    statement = (
        "In the regime of bounded entries, RoPE attention is approximated in almost linear time by "
        "polynomials and fast Fourier transforms. (That bounded entries are necessary under SETH is no "
        "matter of runs: see docs/explanation/lower-bound.md.)"
    )
    source = "Abstract"
    prediction = (
        "with logits below 1: heads certified within 0.01 max|v| and predicted to gain at 65,536 tokens ≥ "
        "half of all; exponent of their predicted cost from 65,536 to 1,048,576 tokens ≤ 1.1; "
        "acc(RoPE) − acc(bounded) ≤ 10 points"
    )
    test = (
        "Models whose queries and keys are mapped into a ball, so that no logit reaches 1, trained on Task "
        "1, and the same without that map. `spectrope attention plan` bounds logits on 16 held-out examples, "
        "which longer sequences are assumed not to exceed; costs are counted from operations, and no time is "
        "measured. The plan takes blocks or FFT, whichever is predicted to cost less. Student's t over seeds."
    )
    paper = "a theorem, no number"
    conditions = ("controlled",)
    unplanned = "A claim of another paper, on models made for it: the public code of the first is none of it."
    tables = (TABLE,)

    def arms(self, condition: str, scale: str, seed: int) -> Mapping[str, Experiment]:
        return by_encoding("distance", condition, scale, seed, ("bounded", "rope"))

    def measured(self, arm: str, experiment: AnyExperiment) -> tuple[str, ...]:
        return super().measured(arm, experiment) if arm == "bounded" else ()

    def parts(self, seen: Seen) -> Iterator[Part]:
        yield Part(
            quantity="heads with bounded logits, share certified and predicted to gain at 65,536 tokens",
            prediction=AtLeast(HALF, "of heads", null=None),
            values=seen.values("bounded", served),
        )
        yield Part(
            quantity="these heads, exponent of the predicted cost in the length",
            prediction=AtMost(ALMOST, "exponent", null=2.0),
            values=seen.values("bounded", exponent),
        )
        yield Part(
            quantity="RoPE minus bounded, held-out accuracy in points",
            prediction=AtMost(SMALL),
            values=seen.minus("rope", "bounded", held_out),
        )


def served(row: StudyRow) -> float | None:
    """Share of the heads that a plan serves by a fast kernel at the shorter length."""
    table = row.tables.get(TABLE)
    if table is None:
        return None
    shorter = table.filter(pl.col("length") == table["length"].min())
    return len(shorter.filter(pl.col("choice") != "exact")) / len(shorter)


def exponent(row: StudyRow) -> float | None:
    """The power of the length by which the summed cost of heads grows that are served at both lengths."""
    table = row.tables.get(TABLE)
    if table is None:
        return None
    both = table.filter((pl.col("choice") != "exact").all().over("layer", "head"))
    costs = both.group_by("length").agg(pl.col("cost_estimate").sum()).sort("length")
    if len(costs) < 2:
        return None
    (short, low), (long, high) = costs.iter_rows()
    return log(high / low) / log(long / short)
