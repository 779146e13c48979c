"""Claim 15: do the results implied by the training pairs determine the attainable test accuracy?"""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from statistics import fmean

import numpy as np

from spectrope.grokking import Coverage, GrokExperiment, ModularConfig, coverage_of
from spectrope.grokking.tasks.modular import Split
from spectrope.stats import spearman, t_interval
from spectrope.study.claims.grok_distribution import GROKKED
from spectrope.study.grok_arms import ABSTRACT, HELD, SIDES, GrokClaim, base, held, last
from spectrope.study.predictions import AtLeast, Values, Within
from spectrope.study.quantities import Quantity, Seen, difference
from spectrope.study.rows import StudyRow
from spectrope.study.verdict import Part

NEAR = 5.0  # Points between the predicted and the measured test accuracy.
RHO = 0.3  # Smallest rank correlation of interest.
MOST = max(SIDES)


class GrokCoverage(GrokClaim, name="grok-coverage"):
    """Test accuracy against what follows from the training pairs."""

    number = 15
    title = "Grokking: test accuracy increases with the trained share of a pair's class"
    statement = (
        "Whether the test set is grokked is decided by which label-equivalence classes the training pairs "
        "cover, beside uniformity."
    )
    source = f"{ABSTRACT}; classes and number are ours"
    quote = (
        "The occurrence of grokking is jointly determined by the uniformity of the embedding space and the "
        "distribution of the training dataset."
    )
    prediction = (
        "|test accuracy − attainable| ≤ 5 points, where attainable is the share of test pairs whose result "
        "follows from the training pairs, and chance for the rest; over squares and strips, test accuracy "
        "and the share of a test pair's class that trains have a rank correlation of at least 0.3"
    )
    test = (
        "A result follows if every way of writing operands and results as phases, u_a + v_b = w_c, that "
        "satisfies the training pairs satisfies the pair too: linear algebra, known before training "
        "(`spectrope grok-theory`). With one vocabulary u is v. The last arm parts the vocabularies, so that "
        "nothing follows about held-out first operands. A class is the pairs of one result. Beside each "
        "part: the accuracy of answering what is not held out and nothing else, which was thought of after "
        "some results had been seen. Student's t."
    )
    ours = True

    def arms(self, condition: str, scale: str, seed: int) -> dict[str, GrokExperiment]:
        holes = {f"{kind}, k = {k}": held(kind, k, scale, seed) for kind in HELD for k in SIDES}
        strip = holes[f"strip, k = {MOST}"]
        parted = replace(strip, task=replace(strip.task, offset=strip.task.p))
        return {"random": base(scale, seed), **holes, f"strip, k = {MOST}, two vocabularies": parted}

    def parts(self, seen: Seen) -> Iterator[Part]:
        yield Part(
            quantity="test accuracy on random pairs",
            prediction=AtLeast(GROKKED, null=None),
            values=seen.values("random", last("test_accuracy", 100.0)),
            premise=True,
        )
        for arm in (name for name in seen.arms if name != "random"):
            answered = seen.values(arm, _not_held_out)
            yield Part(
                quantity=f"{arm}, test accuracy minus attainable",
                prediction=Within(NEAR),
                values=seen.values(arm, _excess),
                note=f"not held out {fmean(answered.values()):.1f} %" if answered else "",
            )
        rivals = _rivals(seen)
        yield Part(
            quantity="test accuracy against the share of the class that trains, over squares and strips",
            prediction=AtLeast(RHO, "rho"),
            values=_correlations(seen, share_trained),
            note=rivals,
            beside=rivals,
        )


def expected(row: StudyRow) -> Coverage | None:
    """What the training pairs of a run cover."""
    one = GrokExperiment.of(row.experiment)
    return None if one is None else _covered(one.task, one.seed)


def share_trained(row: StudyRow) -> float | None:
    """Mean over test pairs of the share of their class that trains, in percent."""
    covered = expected(row)
    return None if covered is None else 100 * covered.trained


def attainable_of(row: StudyRow) -> float | None:
    """Accuracy of answering what follows from the training pairs, and the rest by chance, in percent."""
    covered = expected(row)
    return None if covered is None else 100 * covered.attainable


def _excess(row: StudyRow) -> float | None:
    measured, best = last("test_accuracy", 100.0)(row), attainable_of(row)
    return None if measured is None or best is None else measured - best


def _not_held_out(row: StudyRow) -> float | None:
    if (one := GrokExperiment.of(row.experiment)) is None:
        return None
    split = _split(one.task, one.seed)
    return 100 * (~split.held_out[~split.trains]).double().mean().item()


def pairs_trained(row: StudyRow) -> float | None:
    """Number of training pairs."""
    one = GrokExperiment.of(row.experiment)
    return None if one is None else float(_split(one.task, one.seed).trains.sum())


def _rivals(seen: Seen) -> str:
    """The same correlation for what else differs between the holes, and whether it differs from that."""
    own = _correlations(seen, share_trained)
    rivals = {
        "number of training pairs": pairs_trained,
        "share of test pairs outside the hole": _not_held_out,
    }
    told = []
    for words, quantity in rivals.items():
        rhos = _correlations(seen, quantity)
        if len(rhos) < 2:
            continue
        rho, more = (t_interval(np.array(list(one.values()))) for one in (rhos, difference(rhos, own)))
        apart = "" if more.low > 0 or more.high < 0 else ", not shown to differ"
        told.append(f"with the {words} instead {rho.estimate:.2f} [{rho.low:.2f} to {rho.high:.2f}]{apart}")
    return "; ".join(told)


def _correlations(seen: Seen, quantity: Quantity) -> Values:
    """Spearman's between test accuracy and a quantity, one per seed that has all holes of one vocabulary."""
    holes = [name for name in seen.arms if name != "random" and "two" not in name]
    rhos = {}
    for seed in sorted({seed for name, seed in seen.rows if name in holes}):
        rows = [seen.rows.get((name, seed)) for name in holes]
        pairs = [(quantity(row), last("test_accuracy")(row)) for row in rows if row is not None]
        if len(pairs) == len(holes) and all(None not in pair for pair in pairs):
            trained, reached = np.array(pairs, float).T
            rhos[seed] = spearman(trained, reached)
    return {seed: rho for seed, rho in rhos.items() if rho is not None}


@cache
def _covered(task: ModularConfig, seed: int) -> Coverage:
    return coverage_of(_split(task, seed), task.p, task.offset)


@cache
def _split(task: ModularConfig, seed: int) -> Split:
    return task.build().split(seed)
