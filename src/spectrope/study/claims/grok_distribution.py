"""Claim 13: can embeddings be uniform without generalisation to the test set?"""

from collections.abc import Iterator
from statistics import fmean

from spectrope.grokking import GrokExperiment
from spectrope.study.claims.grok_uniformity import CHANGE
from spectrope.study.grok_arms import ABSTRACT, HELD, SIDES, GrokClaim, as_many, base, held, last
from spectrope.study.predictions import AtLeast, AtMost
from spectrope.study.quantities import Seen, told_mean
from spectrope.study.verdict import Part

GROKKED, NOT_GROKKED = 95.0, 90.0  # Percent of the test set.
LOSS = 10.0  # Points of test accuracy that a hole must cost beyond its pairs.
MOST = max(SIDES)


class GrokDistribution(GrokClaim, name="grok-distribution"):
    """Uniformity of embeddings if a square or a strip of pairs is held out of training."""

    number = 13
    title = (
        "Grokking: holding out a square costs more test accuracy than holding out equally many random pairs"
    )
    statement = (
        "Uniform embeddings do not suffice: whether the test set is grokked also depends on which pairs "
        "train. The public code holds out a square (both operands at most k) or a strip (the first at most "
        "k); that embeddings become uniform there is our reading."
    )
    quote = (
        "this optimization merely leads to token uniformity, which is not a sufficient condition for "
        "grokking. […] The occurrence of grokking is jointly determined by the uniformity of the embedding "
        "space and the distribution of the training dataset."
    )
    source = f"{ABSTRACT}; holes with k = 40, 50, 60, 67 of 97 in the public code"
    prediction = (
        "for square and strip at k = 67: unevenness − unevenness(random) ≤ 0.1 at the end, test accuracy "
        "≤ 90 %, and accuracy(as many random pairs) − accuracy ≥ 10 points; given accuracy ≥ 95 % on random "
        "pairs"
    )
    test = (
        "Addition, one layer, k in proportion to the modulus. Both operands share one vocabulary: in the "
        "paper's, held-out first operands of a strip are mostly tokens that nothing trains. Test accuracy is "
        "that on all pairs that do not train: those of the hole, and those outside that were not drawn, so "
        "that the two arms of a comparison are tested on different pairs. Where a large hole leaves fewer "
        "pairs to train on, it is compared with as many random ones, else with the runs on random pairs "
        "themselves, as the square is at modulus 97. All runs spend the same steps; pairs that are "
        "not answered at their end might be with more. Paired by seed, Student's t."
    )

    def arms(self, condition: str, scale: str, seed: int) -> dict[str, GrokExperiment]:
        holes = {f"{kind}/{k}": held(kind, k, scale, seed) for kind in HELD for k in SIDES}
        controls = {f"random/{kind}": as_many(kind, MOST, scale, seed) for kind in HELD}
        return {"random": base(scale, seed), **holes, **controls}

    def parts(self, seen: Seen) -> Iterator[Part]:
        accuracy = last("test_accuracy", 100.0)
        yield Part(
            quantity="test accuracy on random pairs",
            prediction=AtLeast(GROKKED, null=None),
            values=seen.values("random", accuracy),
            premise=True,
        )
        for kind in HELD:
            most = f"{kind}/{MOST}"
            yield Part(
                quantity=f"{kind}, k = {MOST}, unevenness minus that of random pairs",
                prediction=AtMost(CHANGE, "of the Gram matrix"),
                values=seen.minus(most, "random", last("unevenness")),
            )
            yield Part(
                quantity=f"{kind}, k = {MOST}, test accuracy",
                prediction=AtMost(NOT_GROKKED),
                values=seen.values(most, accuracy),
                note=_others(seen, kind),
            )
            yield Part(
                quantity=f"{kind}, k = {MOST}, test accuracy from as many random pairs minus its own",
                prediction=AtLeast(LOSS),
                values=seen.minus(f"random/{kind}", most, accuracy),
                untestable=_too_few_pairs(seen, kind),
                beside="; ".join(told for told in (_in_hole(seen, most), _unevenness(seen, most)) if told),
            )
            yield Part(
                quantity=f"{kind}, k = {MOST}, accuracy on the pairs held out",
                prediction=AtMost(NOT_GROKKED),
                values=seen.values(most, last("held_out_accuracy", 100.0)),
                for_comparison=True,
            )


def _too_few_pairs(seen: Seen, kind: str) -> str:
    """Why a hole cannot cost accuracy: as many random pairs are not grokked either. Empty if they are."""
    control = seen.values(f"random/{kind}", last("test_accuracy", 100.0)).values()
    if not control or fmean(control) >= GROKKED:
        return ""
    return f"equally many random pairs are not grokked either ({fmean(control):.1f} %)"


def _in_hole(seen: Seen, most: str) -> str:
    """Accuracy on the pairs of the hole alone, which the test set may mix with others; empty without runs."""
    scores = seen.values(most, last("held_out_accuracy", 100.0)).values()
    return f"on the pairs of the hole alone {fmean(scores):.1f} %" if scores else ""


def _unevenness(seen: Seen, most: str) -> str:
    """How uniform embeddings become without the pairs of a hole; empty with fewer than two seeds."""
    more = told_mean(seen.minus(most, "random", last("unevenness")))
    told = f"unevenness of embeddings minus that of random pairs {more}, at most {CHANGE:g} predicted"
    return told if more else ""


def _others(seen: Seen, kind: str) -> str:
    """Mean accuracies at the smaller k, as far as there are any."""
    accuracies = {k: seen.values(f"{kind}/{k}", last("test_accuracy", 100.0)) for k in SIDES[:-1]}
    means = [f"{sum(at_k.values()) / len(at_k):.1f} at k = {k}" for k, at_k in accuracies.items() if at_k]
    return ", ".join(means)
