"""Claim 9: does the deposit foretell how a model fares on longer sequences?"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import polars as pl
from scipy import stats

from spectrope.claims.arms import ACCURACY, NAMES, by_encoding
from spectrope.claims.base import Claim
from spectrope.claims.predictions import AtLeast
from spectrope.claims.quantities import gap
from spectrope.claims.seen import Seen, Values
from spectrope.claims.verdict import Part
from spectrope.claims.without_dropout import distance_at
from spectrope.sweeps.rows import Row
from spectrope.training.config import Experiment

ENCODINGS = ("nope", "sinusoidal", "t5", "alibi", "rope", "blend")
RATES = (0.0, 0.3)  # Of dropout, other than the scale's: RoPE without dropout has deposits most often.
CORRELATION = 0.3  # Smallest rank correlation of interest.
Coefficient = Callable[[np.ndarray, np.ndarray], Any]  # Its first value is the correlation.
FLAT = 1e-9  # Spread, of points and percent, that is rounding.
FEWEST = 4  # Pairs that a correlation is worth computing of.


class Extrapolation(Claim, name="extrapolation"):
    """Train at one length, test at 1, 1.5, 2 and 4 times that."""

    number = 9
    title = "The deposit goes with poor length extrapolation"
    statement = (
        "The deposit is linked to poor length extrapolation (the authors have no direct evidence); mixing "
        "plain and rotated logits, αG_e + J, is suggested as a remedy."
    )
    source = "Appendix D, and Eq. 12 with J for I"
    prediction = (
        "the largest gap of a run and its loss on longer sequences have a correlation of at least 0.3, over "
        "arms, and over runs of the same arm; loss(RoPE) − loss(αG_e + J) ≥ 2 points"
    )
    test = (
        "Task 1, each held-out sequence 1.5, 2 and 4 times as long by words before and after its own, so "
        "that labels stay; the loss is the part of the accuracy that is lost, in percent, averaged over the "
        "three. One correlation per seed over eight arms: six encodings, and RoPE at two other rates of "
        "dropout. Spearman's as they are; Pearson's once each arm's mean over seeds is taken off, so that "
        "only differences between runs of one arm count. Student's t over seeds. Tables of random positions "
        "end with the length of training and cannot take part."
    )
    paper = "untested by the authors"
    conditions = ("controlled", "described")
    unplanned = "Not under `released`: its table of relative biases (R4) has no entry for longer lags."
    tables = ("ablation", "lengths")

    def arms(self, condition: str, scale: str, seed: int) -> dict[str, Experiment]:
        usual = by_encoding("distance", condition, scale, seed, ENCODINGS)
        return usual | {f"rope/{p:g}": distance_at(p, "rope", condition, scale, seed) for p in RATES}

    def parts(self, seen: Seen) -> Iterator[Part]:
        gaps = {name: seen.values(name, gap(), only_learned=True) for name in seen.arms}
        losses = {name: seen.values(name, length_loss, only_learned=True) for name in seen.arms}
        yield Part(
            quantity="gap against loss, over arms",
            prediction=AtLeast(CORRELATION, "rho"),
            values=rank_correlations(list(gaps.values()), list(losses.values())),
        )
        yield Part(
            quantity="gap against loss, over runs of the same arm",
            prediction=AtLeast(CORRELATION, "r"),
            values=within_arms(list(gaps.values()), list(losses.values())),
        )
        rope, blend = losses.get("rope", {}), losses.get("blend", {})
        yield Part(
            quantity=f"loss under {NAMES['rope']} minus under αG_e + J",
            prediction=AtLeast(ACCURACY),
            values={seed: rope[seed] - blend[seed] for seed in rope if seed in blend},
        )


def length_loss(row: Row) -> float | None:
    """Part of the accuracy at the length of training that longer sequences lose, in percent, on average."""
    table = row.tables.get("lengths")
    if table is None:
        return None
    own = table.filter(pl.col("factor") == 1.0)["accuracy"].item()
    longer = table.filter(pl.col("factor") > 1.0)["accuracy"]
    return 100 * (1 - sum(longer) / len(longer) / own) if own > 0 else None


def rank_correlations(first: Sequence[Values], second: Sequence[Values]) -> Values:
    """Spearman's correlation of two quantities over arms, seed by seed, where there is one."""
    return _correlations(first, second, stats.spearmanr)


def within_arms(first: Sequence[Values], second: Sequence[Values]) -> Values:
    """Pearson's correlation of what two quantities differ by from their means over seeds, seed by seed."""
    return _correlations(list(map(_centred, first)), list(map(_centred, second)), stats.pearsonr)


def _centred(values: Values) -> Values:
    mean = sum(values.values()) / len(values) if values else 0.0
    return {seed: value - mean for seed, value in values.items()}


def _correlations(first: Sequence[Values], second: Sequence[Values], coefficient: Coefficient) -> Values:
    found: Values = {}
    for seed in sorted(set[int]().union(*first)):
        pairs = [(x[seed], y[seed]) for x, y in zip(first, second, strict=True) if seed in x and seed in y]
        columns = np.array(pairs, dtype=float).reshape(-1, 2)
        if len(columns) >= FEWEST and (np.ptp(columns, axis=0) > FLAT).all():
            found[seed] = float(coefficient(columns[:, 0], columns[:, 1])[0])
    return found
