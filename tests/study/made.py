"""Rows with known numbers, for any arm of any claim."""

from collections.abc import Callable, Mapping
from typing import Any

import polars as pl

from spectrope.core.config import config_hash
from spectrope.lab.experiments import AnyExperiment, written
from spectrope.lab.runs import DATA_VERSION
from spectrope.lab.training.config import Experiment
from spectrope.store import RESULTS_VERSION
from spectrope.study.claim import Claim
from spectrope.study.quantities import ABLATION, own_ablation
from spectrope.study.rows import FACTS, StudyRow, StudyRows
from spectrope.study.verdict import ClaimVerdict

FACTS_OF_ALL = dict.fromkeys(FACTS) | {
    "finished_at": "2026-01-01T00:00:00+00:00",
    "precision": "float32",
    "bayes_accuracy": 1.0,
    "train_accuracy": 0.99,
    "test_accuracy": 0.95,
    "seconds": 30.0,
}
Say = Callable[[str, int], Mapping[str, Any]]  # What differs in the row of an arm and a seed.


def row(
    experiment: AnyExperiment,
    *,
    test: float = 95.0,
    train: float = 99.0,
    curve: tuple[float, ...] | None = None,
    gaps: tuple[float, ...] | None = None,
    theirs: tuple[float, ...] | None = None,
    lengths: Mapping[float, float] | None = None,
    tables: Mapping[str, pl.DataFrame] | None = None,
    **facts: Any,
) -> StudyRow:
    """A row with accuracies and gaps in percent; a gap of 20 or more counts as a deposit of its layer.

    Gaps by the authors' ablation, which count under `released`, are `theirs`, by default the same.
    """
    made = {"metrics": metrics(curve or (test,))}
    if isinstance(experiment, Experiment):
        gaps = (1.0,) * experiment.model.n_layers if gaps is None else gaps
        for name, found in {own_ablation(experiment): theirs or gaps, ABLATION: gaps}.items():
            made |= {name: ablation(experiment, found), name.replace(ABLATION, "deposit"): deposits(found)}
    if lengths is not None:
        made["lengths"] = pl.DataFrame(
            {"factor": list(lengths), "accuracy": [value / 100 for value in lengths.values()]}
        )
    scores = {"test_accuracy": test / 100, "train_accuracy": train / 100, "test_loss": 1.01 - test / 100}
    name = config_hash(written(experiment), DATA_VERSION, RESULTS_VERSION)
    return StudyRow(experiment, FACTS_OF_ALL | scores | facts, made | dict(tables or {}), name)


def metrics(curve: tuple[float, ...]) -> pl.DataFrame:
    return pl.DataFrame(
        [
            {"epoch": epoch, "step": epoch, "split": split, "loss": 1.0, "accuracy": value / 100}
            for epoch, value in enumerate((0.0, *curve))
            for split in ("train", "test")
        ]
    )


def ablation(experiment: Experiment, gaps: tuple[float, ...]) -> pl.DataFrame:
    heads = range(experiment.model.n_heads)
    return pl.DataFrame(
        [
            {"layer": layer, "head": head, "drop": drop, "low": drop - 1, "high": drop + 1}
            for layer, gap in enumerate(gaps)
            for head in heads
            for drop in [1.0 + gap * (head == 0)]
        ]
    )


def deposits(gaps: tuple[float, ...]) -> pl.DataFrame:
    return pl.DataFrame(
        [
            {"layer": layer, "head": 0, "drop": gap + 1, "gap": gap, "deposit": gap >= 20.0}
            for layer, gap in enumerate(gaps)
        ]
    )


def rows_of(
    claim: Claim, say: Say, *, condition: str = "controlled", seeds: int = 6, scale: str = "mini"
) -> StudyRows:
    """A row for every arm and seed, as `say` has it; an arm of which it says None has none.

    Seeds are the first that count, from the claim's first unexplored one on.
    """
    made = []
    for seed in range(claim.explored, claim.explored + seeds):
        for arm, experiment in claim.arms(condition, scale, seed).items():
            said = say(arm, seed)
            if said is not None:
                made.append(row(experiment, **said))
    return StudyRows.of(made)


def jitter(seed: int) -> float:
    """Something that differs from seed to seed, of size about 1; 0 on average over any six in a row."""
    return (0.3, -0.9, 0.8, -0.4, 0.9, -0.7)[seed % 6]


def together(verdict: ClaimVerdict) -> str:
    """What the parts of a claim say together, whichever decides it: the worst of them."""
    premises = [one.word for one in verdict.findings if one.part.premise]
    tested = (one for one in verdict.findings if not (one.part.premise or one.part.for_comparison))
    words = {one.word for one in tested}
    if set(premises) - {"reproduced"} or not words:
        return "undecided"
    if verdict.headline and verdict.headline.word == "saturated":
        return "saturated"
    for word in ("contradicted", "undecided"):
        if words & {word, *(("direction only", "not testable here") if word == "undecided" else ())}:
            return word
    return "reproduced" if "reproduced" in words else "saturated"
