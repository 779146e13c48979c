"""Claim 12: does weight decay make tokens uniform?"""

from collections.abc import Iterator
from statistics import fmean

from spectrope.grokking import GrokExperiment
from spectrope.study.grok_arms import ABSTRACT, SIDES, GrokClaim, as_many, base, last, rise
from spectrope.study.predictions import AtLeast, AtMost
from spectrope.study.quantities import Seen, difference, told_mean
from spectrope.study.verdict import Part

FITTED = 99.0  # Percent of the training pairs, from which on weight decay dominates the loss.
FEW, FEWER = (
    "few pairs",
    0.9,
)  # The arm with as many random pairs as the widest strip leaves, if clearly fewer.
CHANGE = 0.1  # Smallest change of unevenness of interest, which goes from 0 to 1.


class GrokUniformity(GrokClaim, name="grok-uniformity"):
    """Token uniformity with weight decay and without."""

    number = 12
    title = "Grokking: embeddings become more uniform with weight decay than without"
    statement = (
        "Where weight decay dominates the loss, minimising it arranges all tokens alike. (That such "
        "embeddings are necessary and sufficient for a local minimum of weight decay is no matter of runs: "
        "see docs/how-to/grokking.md.)"
    )
    source = ABSTRACT
    quote = (
        "The weight decay term encourages uniformity across all tokens in the embedding space when it is "
        "minimized."
    )
    prediction = (
        "with weight decay 1: unevenness(end) − unevenness(start) ≤ −0.1, unevenness(end) ≤ 0.1, and "
        "unevenness(end) − unevenness(end, no decay) ≤ −0.1, given that both fit the training pairs"
    )
    test = (
        "Addition learned from random pairs, one layer, with weight decay 1 and 0, for equally many steps. "
        "Unevenness is the share of the centred embeddings' Gram matrix that is not circulant: it does not "
        "depend on norms, which weight decay shrinks whatever the arrangement. Runs from fewer pairs, which "
        "claim 13 has, are shown for comparison. Paired by seed, Student's t."
    )

    def arms(self, condition: str, scale: str, seed: int) -> dict[str, GrokExperiment]:
        usual, few = base(scale, seed), as_many("strip", max(SIDES), scale, seed)
        arms = {"decay": usual, "free": base(scale, seed, weight_decay=0.0)}
        is_fewer = few.task.fraction < FEWER * usual.task.fraction
        return arms | {FEW: few} if is_fewer else arms

    def parts(self, seen: Seen) -> Iterator[Part]:
        uneven = last("unevenness")
        for arm, told in (("decay", "with weight decay"), ("free", "without weight decay")):
            yield Part(
                quantity=f"training accuracy {told}",
                prediction=AtLeast(FITTED, null=None),
                values=seen.values(arm, last("train_accuracy", 100.0)),
                premise=True,
            )
        yield Part(
            quantity="unevenness with weight decay, end minus start",
            prediction=AtMost(-CHANGE, "of the Gram matrix", null=0.0),
            values=seen.values("decay", rise("unevenness")),
        )
        yield Part(
            quantity="unevenness with weight decay, end",
            prediction=AtMost(CHANGE, "of the Gram matrix"),
            values=seen.values("decay", uneven),
        )
        yield Part(
            quantity="unevenness at the end, with weight decay minus without",
            prediction=AtMost(-CHANGE, "of the Gram matrix", null=0.0),
            values=difference(seen.values("decay", uneven), seen.values("free", uneven)),
            beside=_from_few(seen),
        )
        if FEW in seen.arms:
            yield Part(
                quantity="unevenness with weight decay, from fewer random pairs, end minus start",
                prediction=AtMost(-CHANGE, "of the Gram matrix", null=0.0),
                values=seen.values(FEW, rise("unevenness")),
                note=_reached(seen),
                for_comparison=True,
            )


def _from_few(seen: Seen) -> str:
    """What weight decay does with fewer training pairs; empty with fewer than two seeds."""
    change = told_mean(seen.values(FEW, rise("unevenness")), "+.2f")
    told = f"from fewer random pairs ({_reached(seen)}) unevenness changes by {change} with weight decay"
    return told if change else ""


def _reached(seen: Seen) -> str:
    scores = seen.values(FEW, last("test_accuracy", 100.0)).values()
    return f"test accuracy {fmean(scores):.1f} %" if scores else ""
