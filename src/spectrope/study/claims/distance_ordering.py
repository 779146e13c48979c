"""Claim 1: which encoding learns Task 1 fastest, and which generalises."""

from collections.abc import Iterator
from statistics import fmean

from spectrope.study.arms import (
    NAMES,
    ODDS,
    RIVALS,
    TIME,
    Arms,
    ahead,
    by_encoding,
    counted_errors,
    limit_of,
    log_odds_of,
    saturated,
    untrained,
)
from spectrope.study.claim import Claim
from spectrope.study.predictions import AtLeast, AtLeastEach
from spectrope.study.quantities import Seen, held_out, log_loss, log_odds, reached, shortfall, time_to_learn
from spectrope.study.verdict import Part

POOR = 50.0  # Points below the ceiling.


class DistanceOrdering(Claim, name="distance-ordering"):
    """RoPE first, absolute second, the others behind, on the task that needs content and position."""

    number = 1
    title = "Task 1: RoPE ahead of every other encoding"
    statement = (
        "On a task that needs content and relative position, RoPE converges fastest and generalises best; "
        "absolute is second; ALiBi is poor; NoPE and relative do not generalise."
    )
    quote = (
        "RoPE converges fastest and most stably, reaching high training and test accuracy with a minimal "
        "generalization gap. By contrast, Absolute encoding ranks second"
    )
    source = "Sec. 4.2, figure 2 and Table 1"
    prediction = (
        "odds(RoPE) ≥ 1.22 odds(e) for every other e (headline); loss(e) ≥ 1.22 loss(RoPE), and e takes a "
        "tenth of the run longer to learn; odds(absolute) ≥ 1.22 odds(e) for e behind it; ceiling − acc ≥ 50 "
        "points under ALiBi, NoPE, relative"
    )
    test = (
        "Differences paired by seed, Student's t. Odds are of a right held-out answer, in logarithms (0.2 "
        "is a factor of 1.22). RoPE is first if it is shown to be ahead of each of the others; it is not if "
        "one of them, the same for all seeds, is shown to be as good, at a level corrected for their number "
        "(Bonferroni). Shown is the margin over the nearest, whose interval is not corrected for that choice "
        "and covers about 92 % of cases. The time to learn ends at the first evaluation, one per epoch, with "
        "90 % of the best possible accuracy, so that at `mini` it is known to a quarter of the run; a run "
        "without one counts as if it were the evaluation after its end, and two without one are tied."
    )
    paper = "Table 1, test accuracy: RoPE 92.64 %, NoPE 3.51 %; the others in figure 2 alone"

    def arms(self, condition: str, scale: str, seed: int) -> Arms:
        return by_encoding("distance", condition, scale, seed)

    def parts(self, seen: Seen) -> Iterator[Part]:
        yield _first(seen)
        yield from _ahead(seen, "rope", RIVALS)
        for rival in RIVALS:
            yield Part(
                quantity=f"{NAMES[rival]} minus RoPE, held-out loss",
                prediction=AtLeast(ODDS, "log ratio"),
                values=seen.minus(rival, "rope", log_loss),
                untrained=untrained(seen, (rival, "rope")),
            )
            yield Part(
                quantity=f"{NAMES[rival]} minus RoPE, time to learn",
                prediction=AtLeast(TIME, "of the run"),
                values=seen.minus(rival, "rope", time_to_learn),
                note=_arrived(seen, rival, "rope"),
                untrained=untrained(seen, (rival, "rope")),
            )
        yield from _ahead(seen, "sinusoidal", ("random", "alibi", "nope", "t5"))
        for name in ("alibi", "nope", "t5"):
            yield Part(
                quantity=f"{NAMES[name]}, ceiling minus held-out accuracy",
                prediction=AtLeast(POOR, null=None),
                values=seen.values(name, shortfall),
                untrained=untrained(seen, (name,)),
            )


def _first(seen: Seen) -> Part:
    """RoPE against each of the others, on the seeds that all of them have."""
    seen = seen.on(seen.complete(("rope", *RIVALS), log_odds))
    margins = {rival: seen.minus("rope", rival, log_odds) for rival in RIVALS}
    near, prediction = AtLeastEach.of_margins(ODDS, "log odds", margins)
    limit = limit_of(seen, "rope", near)
    rival = f"strongest rival: {NAMES[near]}"
    rival += f", {counted_errors(seen, 'rope', near)}" * bool(limit)
    return Part(
        quantity="RoPE minus each other encoding, held-out accuracy",
        prediction=prediction,
        values=margins[near],
        note=f"{rival}; {_accuracies(seen)}",
        beside=rival if margins[near] else "",
        saturated=any(saturated(seen, ("rope", rival)) for rival in RIVALS),
        limit=limit,
        untrained=untrained(seen, ("rope", *RIVALS)),
    )


def _accuracies(seen: Seen) -> str:
    means = {name: fmean(values.values()) for name in NAMES if (values := seen.values(name, held_out))}
    return ", ".join(f"{NAMES[name]} {mean:.2f} %" for name, mean in means.items())


def _arrived(seen: Seen, *arms: str) -> str:
    """In how many runs of each arm accuracy gets as far as the time to learn asks; nothing if in all."""
    counts = {arm: seen.values(arm, reached) for arm in arms}
    if all(all(one.values()) for one in counts.values()):
        return ""
    told = (f"{NAMES[arm]} in {sum(one.values()):.0f} of {len(one)} runs" for arm, one in counts.items())
    return f"gets there: {', '.join(told)}"


def _ahead(seen: Seen, first: str, rivals: tuple[str, ...]) -> Iterator[Part]:
    for rival in rivals:
        paper = log_odds_of(92.64) - log_odds_of(3.51) if (first, rival) == ("rope", "nope") else None
        yield ahead(seen, first, rival, f"{NAMES[first]} minus {NAMES[rival]}", paper)
