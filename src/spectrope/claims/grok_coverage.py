"""Claim 15: does what the training pairs imply say which test accuracy can be had?"""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

from spectrope.claims.grok_distribution import GROKKED
from spectrope.claims.grokking import BEYOND, HELD, SIDES, GrokClaim, base, held, last
from spectrope.claims.predictions import AtLeast, Within
from spectrope.claims.seen import Seen
from spectrope.claims.verdict import Part
from spectrope.grokking.config import GrokExperiment
from spectrope.grokking.coverage import Coverage, coverage
from spectrope.sweeps.rows import Row
from spectrope.tasks.modular import ModularConfig

NEAR = 5.0  # Points between the predicted and the measured test accuracy.
MOST = max(SIDES)


class GrokCoverage(GrokClaim, name="grok-coverage"):
    """Test accuracy against what follows from the training pairs."""

    number = 15
    title = "Grokking: coverage of label-equivalence classes decides the attainable test accuracy"
    statement = (
        "Whether the test set is grokked is decided by which label-equivalence classes the training pairs "
        "cover, beside uniformity."
    )
    source = f"{BEYOND}, Sec. 4; the number is ours"
    prediction = (
        "|test accuracy − attainable| ≤ 5 points, where attainable is the share of test pairs whose result "
        "follows from the training pairs, and chance for the rest"
    )
    test = (
        "A result follows if every way of writing operands and results as phases, u_a + v_b = w_c, that "
        "satisfies the training pairs satisfies the pair too: linear algebra, known before training "
        "(`spectrope grok-theory`), here on the split of seed 0. With one vocabulary u is v. The last arm "
        "parts the vocabularies, so that nothing follows about held-out first operands. Student's t."
    )
    paper = "no number in the text"

    def arms(self, condition: str, scale: str, seed: int) -> dict[str, GrokExperiment]:
        holes = {f"{kind}, k = {k}": held(kind, k, scale, seed) for kind in HELD for k in SIDES}
        strip = holes[f"strip, k = {MOST}"]
        parted = replace(strip, task=replace(strip.task, offset=strip.task.p))
        return {"random": base(scale, seed), **holes, f"strip, k = {MOST}, two vocabularies": parted}

    def parts(self, seen: Seen) -> Iterator[Part]:
        yield Part(
            quantity="test accuracy on random pairs",
            prediction=AtLeast(GROKKED),
            values=seen.values("random", last("test_accuracy", 100.0)),
            premise=True,
        )
        for arm in (name for name in seen.arms if name != "random"):
            yield Part(
                quantity=f"{arm}, test accuracy minus attainable",
                prediction=Within(NEAR),
                values=seen.values(arm, _excess),
            )


def _excess(row: Row) -> float | None:
    measured = last("test_accuracy", 100.0)(row)
    task = row.experiment.task
    if measured is None or not isinstance(task, ModularConfig):
        return None
    return measured - 100 * expected(task).attainable


@cache
def expected(task: ModularConfig) -> Coverage:
    """What a task's training pairs cover on its split of seed 0."""
    shared = task.offset < task.p
    return coverage(task.build().split(0), task.p, shared=shared)
