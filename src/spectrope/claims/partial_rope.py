"""Claim 5: RoPE on some of the heads."""

from collections.abc import Iterator
from statistics import fmean

import polars as pl

from spectrope.claims.arms import ACCURACY
from spectrope.claims.base import Claim
from spectrope.claims.predictions import AtLeast
from spectrope.claims.quantities import deposit, held_out, own_ablation
from spectrope.claims.seen import Seen
from spectrope.claims.verdict import Part
from spectrope.claims.without_dropout import EXPLORED, WHY, distance_at
from spectrope.encodings.base import EncodingConfig
from spectrope.encodings.nope import NoPE
from spectrope.encodings.per_head import Group, PerHead
from spectrope.encodings.rotary import Rotary
from spectrope.sweeps.rows import Row
from spectrope.training.config import Experiment
from spectrope.training.scales import SCALES

SHOWN = (0, 1, 2, 3, 5, 6, 13, 15, 16)  # Numbers of RoPE heads that the paper shows, of 16.
MOVED = 0.25  # Layers by which drops must move to be of interest.


class PartialRoPE(Claim, name="partial-rope"):
    """Accuracy, and the place of the deposit, against the number of heads that have RoPE."""

    number = 5
    title = "Partial RoPE stays below full RoPE, and the deposit moves deeper"
    statement = (
        "RoPE on k of the heads stays below full RoPE; the deposit moves to layer 2 or 3 for some k (shown "
        "for k = 2, 3, 5, 6, 13, 15 of 16)."
    )
    source = "Sec. 5.1, figures 5 and 9 to 14"
    prediction = (
        "acc(H heads) − acc(k heads) ≥ 2 points for 0 < k < H; for some k the mean layer of the drops, "
        "each weighted by its size, lies 0.25 or more below that of full RoPE"
    )
    test = (
        "Differences paired by seed, Student's t. The k that moves drops furthest is tested, at a level "
        "corrected for the number of k (Bonferroni); runs with a deposit by the rule are counted beside it. "
        f"{WHY} No head has RoPE at k = 0."
    )
    paper = "figure 5; no number in the text"
    conditions = ("controlled", "described")
    unplanned = (
        "Not under `released`: what the public code adds to RoPE's input (R3) has no form for some heads."
    )
    explored = EXPLORED

    def arms(self, condition: str, scale: str, seed: int) -> dict[str, Experiment]:
        n_heads = SCALES[scale]["distance"].model.n_heads
        return {
            str(k): distance_at(0.0, on_heads(k, n_heads), condition, scale, seed) for k in counts_of(n_heads)
        }

    def parts(self, seen: Seen) -> Iterator[Part]:
        counts = sorted(map(int, seen.arms))
        whole, partial = str(max(counts, default=0)), [str(k) for k in counts[1:-1]]
        for k in partial:
            yield Part(
                quantity=f"RoPE on all heads minus on {k}, held-out accuracy",
                prediction=AtLeast(ACCURACY),
                values=seen.minus(whole, k, held_out),
            )
        moves = {k: seen.minus(k, whole, depth) for k in partial}
        known = {k: fmean(values.values()) for k, values in moves.items() if values}
        furthest = max(known, key=lambda k: known[k], default="some")
        yield Part(
            quantity=f"RoPE on {furthest} heads minus on all, mean layer of the drops",
            prediction=AtLeast(MOVED, "layers", tried=max(1, len(partial))),
            values=moves.get(furthest, {}),
            note=_counted(seen, [*partial, whole]),
        )


def counts_of(n_heads: int) -> tuple[int, ...]:
    """Numbers of heads that have RoPE: the paper's where it has that many, else both ends and the middle."""
    return SHOWN if n_heads == SHOWN[-1] else (*sorted({0, 1, n_heads // 2, n_heads - 1, n_heads}),)


def on_heads(k: int, n_heads: int) -> EncodingConfig:
    """RoPE on the first k heads; NoPE and RoPE themselves at either end, so that runs are shared."""
    if k == 0:
        return NoPE.Config()
    return Rotary.Config() if k == n_heads else PerHead.Config(groups=(Group(heads=k),))


def depth(row: Row) -> float | None:
    """Mean layer of the drops, counted from 1 and weighted by their sizes; None where nothing drops."""
    table = row.tables.get(own_ablation(row.experiment))
    if table is None:
        return None
    drops = table.select("layer", weight=pl.col("drop").clip(lower_bound=0))
    total = sum(drops["weight"])
    return sum(drops["layer"] * drops["weight"]) / total if total > 0 else None


def _counted(seen: Seen, arms: list[str]) -> str:
    """For each number of heads, in how many runs layer 1, and a deeper layer, has a deposit."""
    deeper = range(2, seen.n_layers + 1)
    found = {k: (seen.values(k, deposit((1,))), seen.values(k, deposit(deeper))) for k in arms}
    told = [
        f"{k}: {sum(first.values()):.0f} and {sum(later.values()):.0f} of {len(first)}"
        for k, (first, later) in found.items()
    ]
    return f"runs with a deposit in layer 1 and in deeper ones, by heads with RoPE: {', '.join(told)}"
