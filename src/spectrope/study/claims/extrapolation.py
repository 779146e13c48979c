"""Claim 9: does the deposit predict the performance on longer sequences?"""

from collections.abc import Collection, Iterator, Sequence

import numpy as np
import polars as pl
from scipy import stats

from spectrope.study.arms import ACCURACY, NAMES, Arms, by_encoding, distance_at
from spectrope.study.claim import Claim
from spectrope.study.predictions import AtLeast, Values
from spectrope.study.quantities import ABLATION, Seen, gap
from spectrope.study.rows import StudyRow
from spectrope.study.verdict import Part

ENCODINGS = ("nope", "sinusoidal", "t5", "alibi", "rope", "blend")
RATES = (0.0, 0.3)  # Of dropout, other than the scale's: arms of one encoding whose deposits differ.
CORRELATION = 0.3  # Smallest correlation of interest.
PairBySeed = dict[int, tuple[float, float]]  # One per seed.
FLAT = 1e-9  # Spread, of points and percent, that is rounding.
TINY = 1e-6  # An accuracy of which nothing can be lost.
FEWEST = 4  # Pairs that a correlation is worth computing of.


class Extrapolation(Claim, name="extrapolation"):
    """Train at one length, test at 1, 1.5, 2 and 4 times that."""

    number = 9
    title = "Among runs of one encoding, larger gaps go with a greater loss on longer sequences"
    statement = (
        "The deposit is linked to poor length extrapolation (the authors have no direct evidence); mixing "
        "plain and rotated logits, αG_e + J, is suggested as a remedy."
    )
    quote = "We hypothesize that early single-head deposition hinders length robustness"
    source = "Sec. 5.2 and Appendix D, and Eq. 12 with J for I"
    prediction = (
        "the largest gap of a run and its loss on longer sequences have a correlation of at least 0.3, over "
        "arms, and over runs of the same arm; loss(RoPE) − loss(αG_e + J) ≥ 2 points"
    )
    test = (
        "Task 1, each held-out sequence 1.5, 2 and 4 times as long by words before and after its own, so "
        "that labels stay; the loss is the part of the accuracy that is lost, in percent, averaged over the "
        "three. One correlation per seed over eight arms: six encodings, and RoPE at two other rates of "
        "dropout. Spearman's as they are, one value per seed; Pearson's once each arm's mean over seeds is "
        "taken off and what is left is divided by its standard deviation, so that only differences between "
        "runs of one arm count and no arm outweighs another, by the jackknife over seeds. Student's t. A "
        "seed counts once all its arms have run; of these, models that have learned the task. Tables of "
        "random positions end with the length of training and cannot take part."
    )
    history = (
        "Twice as many seeds as of other claims: 6 to 11 left all parts undecided without confounds, could "
        "hardly have decided two, and chose the number. The claim began anew on seeds from 12."
    )
    paper = "untested by the authors"
    conditions = ("controlled", "described")
    unplanned = "Not under `released`: its table of relative biases (R4) has no entry for longer lags."
    tables = (ABLATION, "lengths")
    explored = 12
    times = 2

    def arms(self, condition: str, scale: str, seed: int) -> Arms:
        usual = by_encoding("distance", condition, scale, seed, ENCODINGS)
        return usual | {f"rope/{p:g}": distance_at(p, "rope", condition, scale, seed) for p in RATES}

    def parts(self, seen: Seen) -> Iterator[Part]:
        seeds = seen.complete(seen.arms, gap(), length_loss)
        gaps = {name: seen.values(name, gap(), only_learned=True) for name in seen.arms}
        losses = {name: seen.values(name, length_loss, only_learned=True) for name in seen.arms}
        yield Part(
            quantity="gap against loss, over arms",
            prediction=AtLeast(CORRELATION, "rho"),
            values=rank_correlations(list(gaps.values()), list(losses.values()), seeds),
        )
        yield Part(
            quantity="gap against loss, over runs of the same arm",
            prediction=AtLeast(CORRELATION, "r"),
            values=within_arms(list(gaps.values()), list(losses.values()), seeds),
            note="seeds are pseudo-values of the jackknife",
        )
        rope, blend = losses.get("rope", {}), losses.get("blend", {})
        yield Part(
            quantity=f"loss under {NAMES['rope']} minus under αG_e + J",
            prediction=AtLeast(ACCURACY),
            values={seed: rope[seed] - blend[seed] for seed in rope if seed in blend},
        )


def length_loss(row: StudyRow) -> float | None:
    """Part of the accuracy at the length of training that longer sequences lose, in percent, on average."""
    table = row.tables.get("lengths")
    if table is None:
        return None
    at_training = table.filter(pl.col("factor") == 1.0)["accuracy"]
    longer = table.filter(pl.col("factor") > 1.0)["accuracy"]
    if len(at_training) != 1 or at_training[0] < TINY or longer.is_empty():
        return None
    return 100 * (1 - sum(longer) / len(longer) / at_training[0])


def within_arms(first: Sequence[Values], second: Sequence[Values], seeds: Collection[int]) -> Values:
    """Pearson's correlation over the runs of each arm, all arms pooled, as one pseudo-value per seed.

    Each arm's two quantities are standardised over those of the seeds that have both. With r the correlation
    of all S seeds, and r₋ₛ that without seed s, the pseudo-value of s is S r − (S − 1) r₋ₛ (the jackknife),
    so that their mean has an interval over seeds although means tie them together.
    """
    arms = [
        {seed: (x[seed], y[seed]) for seed in sorted(x.keys() & y.keys() & set(seeds))}
        for x, y in zip(first, second, strict=True)
    ]
    there = sorted(set[int]().union(*arms))
    whole = _pooled(arms, there)
    without = {seed: _pooled(arms, [other for other in there if other != seed]) for seed in there}
    n = len(there)
    return {
        seed: n * whole - (n - 1) * rest
        for seed, rest in without.items()
        if whole is not None and rest is not None
    }


def _pooled(arms: Sequence[PairBySeed], seeds: Collection[int]) -> float | None:
    """Correlation of two quantities standardised arm by arm; None where no arm has spread in both."""
    chosen = ([pair for seed, pair in arm.items() if seed in seeds] for arm in arms)
    tables = [np.array(pairs, dtype=float) for pairs in chosen if len(pairs) > 1]
    spread = [table for table in tables if (np.ptp(table, axis=0) > FLAT).all()]
    scores = np.concatenate([np.zeros((0, 2)), *((table - table.mean(0)) / table.std(0) for table in spread)])
    if len(scores) < FEWEST:
        return None
    return float(stats.pearsonr(scores[:, 0], scores[:, 1])[0])  # pyright: ignore[reportArgumentType]


def rank_correlations(first: Sequence[Values], second: Sequence[Values], seeds: Collection[int]) -> Values:
    """Spearman's correlation of two quantities over arms, for each of some seeds that has one."""
    correlations: Values = {}
    for seed in sorted(seeds):
        pairs = [(x[seed], y[seed]) for x, y in zip(first, second, strict=True) if seed in x and seed in y]
        columns = np.array(pairs, dtype=float).reshape(-1, 2)
        if len(columns) >= FEWEST and (np.ptp(columns, axis=0) > FLAT).all():
            correlations[seed] = float(stats.spearmanr(columns[:, 0], columns[:, 1])[0])  # pyright: ignore[reportArgumentType]
    return correlations
