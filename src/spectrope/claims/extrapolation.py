"""Claim 9: does the deposit foretell how a model fares on longer sequences?"""

from collections.abc import Iterator, Sequence

import numpy as np
import polars as pl
from scipy import stats

from spectrope.claims.arms import ACCURACY, NAMES
from spectrope.claims.base import Claim
from spectrope.claims.predictions import AtLeast
from spectrope.claims.quantities import gap
from spectrope.claims.seen import Seen, Values
from spectrope.claims.verdict import Part
from spectrope.sweeps.rows import Row
from spectrope.training.config import Experiment
from spectrope.training.scales import experiment

ENCODINGS = ("nope", "sinusoidal", "t5", "alibi", "rope", "blend")
CORRELATION = 0.3  # Smallest rank correlation of interest.
FEWEST = 4  # Pairs that a rank correlation is worth computing of.


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
        "the largest gap of a run and its loss on longer sequences have a rank correlation of at least 0.3, "
        "over encodings for each seed and over seeds for each encoding; loss(RoPE) − loss(αG_e + J) ≥ 2 "
        "points"
    )
    test = (
        "Task 1 on sequences up to 1.5, 2 and 4 times as long, with the labels of training and more "
        "fillers; the loss is the accuracy at the length of training minus the mean of the three. "
        "Spearman's correlation, one value per seed over six encodings, and one per encoding over its "
        "seeds; Student's t over these. Tables of random positions end with the length of training and "
        "cannot take part."
    )
    paper = "untested by the authors"
    conditions = ("controlled", "described")
    unplanned = "Not under `released`: its table of relative biases (R4) has no entry for longer lags."
    tables = ("ablation", "lengths")

    def arms(self, condition: str, scale: str, seed: int) -> dict[str, Experiment]:
        return {
            name: experiment("distance", name, scale=scale, condition=condition, seed=seed)
            for name in ENCODINGS
        }

    def parts(self, seen: Seen) -> Iterator[Part]:
        gaps = {name: seen.values(name, gap(), only_learned=True) for name in seen.arms}
        losses = {name: seen.values(name, length_loss, only_learned=True) for name in seen.arms}
        yield Part(
            quantity="gap against loss, over encodings",
            prediction=AtLeast(CORRELATION, "rho"),
            values=rank_correlations(list(gaps.values()), list(losses.values())),
        )
        yield Part(
            quantity="gap against loss, over the seeds of each encoding",
            prediction=AtLeast(CORRELATION, "rho"),
            values=_over_seeds(gaps, losses),
            note="one value per encoding, not per seed",
        )
        rope, blend = losses.get("rope", {}), losses.get("blend", {})
        yield Part(
            quantity=f"loss under {NAMES['rope']} minus under αG_e + J",
            prediction=AtLeast(ACCURACY),
            values={seed: rope[seed] - blend[seed] for seed in rope if seed in blend},
        )


def length_loss(row: Row) -> float | None:
    """Points between the accuracy at the length of training and the mean accuracy at longer ones."""
    table = row.tables.get("lengths")
    if table is None:
        return None
    own = table.filter(pl.col("factor") == 1.0)["accuracy"]
    longer = table.filter(pl.col("factor") > 1.0)["accuracy"]
    return 100 * (sum(own) / len(own) - sum(longer) / len(longer))


def rank_correlations(first: Sequence[Values], second: Sequence[Values]) -> Values:
    """Spearman's correlation of two quantities over arms, seed by seed, where there is one."""
    seeds = sorted(set[int]().union(*first))
    found = {
        seed: _spearman([(x.get(seed), y.get(seed)) for x, y in zip(first, second, strict=True)])
        for seed in seeds
    }
    return {seed: rho for seed, rho in found.items() if rho is not None}


def _over_seeds(gaps: dict[str, Values], losses: dict[str, Values]) -> Values:
    found = [
        _spearman([(value, losses[name].get(seed)) for seed, value in gaps[name].items()]) for name in gaps
    ]
    return {place: rho for place, rho in enumerate(found) if rho is not None}


def _spearman(pairs: Sequence[tuple[float | None, float | None]]) -> float | None:
    """Of the pairs that are whole; None if they are few, or one side has no spread."""
    whole = np.array([pair for pair in pairs if None not in pair], dtype=float).reshape(-1, 2)
    if len(whole) < FEWEST or (np.ptp(whole, axis=0) == 0).any():
        return None
    return float(stats.spearmanr(whole[:, 0], whole[:, 1])[0])  # pyright: ignore[reportArgumentType]
