"""Claim 5: location of the deposit if only some heads use RoPE."""

from collections.abc import Iterator

import polars as pl

from spectrope.lab import SCALES
from spectrope.study.arms import GAP, WITHOUT_DROPOUT, Arms, distance_at
from spectrope.study.claim import Claim
from spectrope.study.claims.partial_rope import LATER, by_count
from spectrope.study.predictions import AtLeast, InRuns, largest
from spectrope.study.quantities import ABLATION, Seen, deposit, deposits_of
from spectrope.study.rows import StudyRow
from spectrope.study.verdict import Part

MOVED = 0.25  # Layers by which gaps must move to be of interest.
SOME = 0.1  # Share of runs of full RoPE in which there must be a deposit that can move.


class PartialDeposit(Claim, name="partial-deposit"):
    """The place of the deposit against the number of heads that have RoPE."""

    number = 5
    title = "RoPE on a subset of the heads moves the gaps to deeper layers, for at least one number of heads"
    statement = (
        "The deposit moves to layer 1 or 2 (2 or 3 in the paper, which counts from 1) for some k of the "
        "heads with RoPE (shown for k = 2, 3, 5, 6, 13, 15 of 16)."
    )
    quote = (
        "Interestingly, we found that the most significant deposit pattern is not necessarily in the first "
        "layer, but may be in the second or third layer."
    )
    source = "App. C.3, figures 9 to 14"
    prediction = (
        "for some 0 < k < H the mean layer of the gaps (claim 3), weighted by their sizes, lies 0.25 or more "
        "below that of full RoPE, given a deposit in layer 0 in more than 10 % of all runs of full RoPE"
    )
    test = (
        "Paired by seed, Student's t: the k that moves gaps furthest decides whether the claim is "
        "reproduced, at a level corrected for the number of k (Bonferroni), and each k must fall short to "
        "contradict it. Models that have learned Task 1 and whose gaps add up to 10 points count; runs "
        f"with a deposit by the rule are counted beside it. {WITHOUT_DROPOUT}"
    )
    paper = "figures 9 to 14; no number in the text"
    later = LATER
    tables = (ABLATION,)
    least_layers = 6
    times = 2

    def arms(self, condition: str, scale: str, seed: int) -> Arms:
        n_heads = SCALES[scale]["distance"].model.n_heads
        return {
            str(k): distance_at(0.0, encoding, condition, scale, seed)
            for k, encoding in by_count(condition, scale, n_heads).items()
            if k > 0
        }

    def parts(self, seen: Seen) -> Iterator[Part]:
        *partial, whole = sorted(seen.arms, key=int) or ["none"]
        yield Part(
            quantity="runs of full RoPE with a deposit in layer 0",
            prediction=InRuns(SOME),
            values=seen.values(whole, deposit((0,))),
            premise=True,
        )
        moves = {k: seen.minus(k, whole, depth, only_learned=True) for k in partial}
        furthest = largest(moves)
        yield Part(
            quantity="RoPE on some of the heads minus on all, mean layer of the gaps",
            prediction=AtLeast.of_some(MOVED, furthest, moves, "layers"),
            values=moves.get(furthest, {}),
            note=f"furthest with RoPE on {furthest}; {_counted(seen, [*partial, whole])}",
        )


def depth(row: StudyRow) -> float | None:
    """Mean layer of the gaps, counted from 0 and weighted by their sizes; None where they are too small."""
    table = deposits_of(row)
    if table is None:
        return None
    gaps = table.select("layer", weight=pl.col("gap").clip(lower_bound=0))
    total = sum(gaps["weight"])
    return sum(gaps["layer"] * gaps["weight"]) / total if total >= GAP else None


def _counted(seen: Seen, arms: list[str]) -> str:
    """For each number of heads, in how many runs layer 0, and a deeper layer, has a deposit."""
    places = {"layer 0": (0,), "deeper ones": range(1, seen.n_layers)}
    told = []
    for k in arms:
        deposits = [seen.values(k, deposit(layers), only_learned=True) for layers in places.values()]
        told.append(
            f"{k}: {' and '.join(f'{sum(one.values()):.0f}' for one in deposits)} of {len(deposits[0])}"
        )
    return f"runs with a deposit in {' and in '.join(places)}, by heads with RoPE: {', '.join(told)}"
