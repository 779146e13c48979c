"""Claim 5: RoPE on some of the heads."""

from collections.abc import Iterator

from spectrope.claims.arms import ACCURACY
from spectrope.claims.base import Claim
from spectrope.claims.predictions import AtLeast, InMost
from spectrope.claims.quantities import deposit, held_out
from spectrope.claims.seen import Seen, Values
from spectrope.claims.verdict import Part
from spectrope.encodings.base import EncodingConfig
from spectrope.encodings.nope import NoPE
from spectrope.encodings.per_head import Group, PerHead
from spectrope.encodings.rotary import Rotary
from spectrope.training.config import Experiment
from spectrope.training.scales import SCALES, experiment

SHOWN = (0, 1, 2, 3, 5, 6, 13, 15, 16)  # Numbers of RoPE heads that the paper shows, of 16.
DEEPER = (2, 3)  # Layers, counted from 1, that the deposit is said to move to.


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
        "acc(H heads) − acc(k heads) ≥ 2 points for 0 < k < H; for some k the deposit rule finds a deposit "
        "in layer 2 or 3 and none in layer 1, in most seeds"
    )
    test = (
        "Differences paired by seed, Student's t; a seed counts for the second part if any k shows it, "
        "which makes that part easy to pass. No head has RoPE at k = 0, which is NoPE."
    )
    paper = "figure 5; no number in the text"
    conditions = ("controlled", "described")
    unplanned = (
        "Not under `released`: what the public code adds to RoPE's input (R3) has no form for some heads."
    )

    def arms(self, condition: str, scale: str, seed: int) -> dict[str, Experiment]:
        n_heads = SCALES[scale]["distance"].model.n_heads
        counts = SHOWN if n_heads == 16 else range(n_heads + 1)
        return {
            str(k): experiment("distance", on_heads(k, n_heads), scale=scale, condition=condition, seed=seed)
            for k in counts
        }

    def parts(self, seen: Seen) -> Iterator[Part]:
        counts = sorted(map(int, seen.arms))
        partial = [str(k) for k in counts[1:-1]]
        for k in partial:
            yield Part(
                quantity=f"RoPE on all heads minus on {k}, held-out accuracy",
                prediction=AtLeast(ACCURACY),
                values=seen.minus(str(counts[-1]), k, held_out),
            )
        yield Part(
            quantity="runs of a seed with a deposit in layer 2 or 3, and none in layer 1, for some k",
            prediction=InMost(),
            values=_moved(seen, partial),
        )


def on_heads(k: int, n_heads: int) -> EncodingConfig:
    """RoPE on the first k heads; NoPE and RoPE themselves at either end, so that runs are shared."""
    if k == 0:
        return NoPE.Config()
    return Rotary.Config() if k == n_heads else PerHead.Config(groups=(Group(heads=k),))


def _moved(seen: Seen, arms: list[str]) -> Values:
    """1 for each seed of which some arm has a deposit deeper than in layer 1, and none there; else 0."""
    found: list[Values] = []
    for arm in arms:
        first = seen.values(arm, deposit((1,)), only_learned=True)
        deeper = seen.values(arm, deposit(DEEPER), only_learned=True)
        found.append({seed: deeper[seed] * (1.0 - first[seed]) for seed in first.keys() & deeper.keys()})
    seeds = sorted(set[int]().union(*found))
    return {seed: max(values[seed] for values in found if seed in values) for seed in seeds}
