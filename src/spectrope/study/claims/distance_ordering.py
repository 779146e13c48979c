"""Claim 1: which encoding learns Task 1 fastest, and which generalises."""

from collections.abc import Iterator

from spectrope.lab import Experiment
from spectrope.study.arms import ACCURACY, NAMES, RIVALS, by_encoding
from spectrope.study.claim import Claim
from spectrope.study.predictions import AtLeast
from spectrope.study.quantities import Seen, held_out, shortfall, speed
from spectrope.study.verdict import Part

POOR = 50.0  # Points below the ceiling.


class DistanceOrdering(Claim, name="distance-ordering"):
    """RoPE first, absolute second, the others behind, on the task that needs content and position."""

    number = 1
    title = "Task 1: RoPE first, absolute second, the others far behind"
    statement = (
        "On a task that needs content and relative position, RoPE converges fastest and generalises best; "
        "absolute is second; ALiBi is poor; NoPE and relative do not generalise."
    )
    source = "Sec. 4.2, figure 2 and Table 1"
    prediction = (
        "acc(RoPE) − acc(e) ≥ 2 points and speed(RoPE) − speed(e) ≥ 2 points for every other e; "
        "acc(absolute) − acc(e) ≥ 2 for e behind it; ceiling − acc ≥ 50 under ALiBi, NoPE and relative"
    )
    test = (
        "Differences paired by seed, Student's t against the smallest effect of interest. Speed is held-out "
        "accuracy averaged over the epochs."
    )
    paper = "Table 1, test accuracy: RoPE 92.64 %, NoPE 3.51 %; the others in figure 2 alone"

    def arms(self, condition: str, scale: str, seed: int) -> dict[str, Experiment]:
        return by_encoding("distance", condition, scale, seed)

    def parts(self, seen: Seen) -> Iterator[Part]:
        yield from _ahead(seen, "rope", RIVALS)
        for rival in RIVALS:
            yield Part(
                quantity=f"RoPE minus {NAMES[rival]}, speed",
                prediction=AtLeast(ACCURACY),
                values=seen.minus("rope", rival, speed),
            )
        yield from _ahead(seen, "sinusoidal", ("random", "alibi", "nope", "t5"))
        for name in ("alibi", "nope", "t5"):
            yield Part(
                quantity=f"{NAMES[name]}, ceiling minus held-out accuracy",
                prediction=AtLeast(POOR),
                values=seen.values(name, shortfall),
            )


def _ahead(seen: Seen, first: str, rivals: tuple[str, ...]) -> Iterator[Part]:
    for rival in rivals:
        yield Part(
            quantity=f"{NAMES[first]} minus {NAMES[rival]}, held-out accuracy",
            prediction=AtLeast(ACCURACY),
            values=seen.minus(first, rival, held_out),
            paper=92.64 - 3.51 if (first, rival) == ("rope", "nope") else None,
        )
