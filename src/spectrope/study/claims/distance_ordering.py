"""Claim 1: which encoding learns Task 1 fastest, and which generalises."""

from collections.abc import Iterator
from statistics import fmean

from spectrope.study.arms import NAMES, ODDS, RIVALS, TIME, Arms, ahead, by_encoding, log_odds_of, saturated
from spectrope.study.claim import Claim
from spectrope.study.predictions import AtLeast
from spectrope.study.quantities import Seen, held_out, log_loss, log_odds, shortfall, time_to_learn
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
        "odds(RoPE) ≥ 1.22 odds(e) for the best other e of each seed (headline); loss(e) ≥ 1.22 "
        "loss(RoPE), and e takes a tenth of the run longer to learn; odds(absolute) ≥ 1.22 odds(e) for e "
        "behind it; ceiling − acc ≥ 50 points under ALiBi, NoPE and relative"
    )
    test = (
        "Differences paired by seed, Student's t. Odds are of a right held-out answer, in logarithms (0.2 "
        "is a factor of 1.22). That the best of the others is chosen seed by seed counts against RoPE: of "
        "six equal encodings none is first. The time to learn ends at 90 % of the best possible accuracy; "
        "a run that never gets there counts with all its steps."
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
            )
            yield Part(
                quantity=f"{NAMES[rival]} minus RoPE, time to learn",
                prediction=AtLeast(TIME, "of the run"),
                values=seen.minus(rival, "rope", time_to_learn),
            )
        yield from _ahead(seen, "sinusoidal", ("random", "alibi", "nope", "t5"))
        for name in ("alibi", "nope", "t5"):
            yield Part(
                quantity=f"{NAMES[name]}, ceiling minus held-out accuracy",
                prediction=AtLeast(POOR, null=None),
                values=seen.values(name, shortfall),
            )


def _first(seen: Seen) -> Part:
    """RoPE against the best of the others, seed by seed."""
    margins = [seen.minus("rope", rival, log_odds) for rival in RIVALS]
    seeds = seen.complete(("rope", *RIVALS), log_odds)
    return Part(
        quantity="RoPE minus the best of the others, held-out accuracy",
        prediction=AtLeast(ODDS, "log odds"),
        values={seed: min(margin[seed] for margin in margins) for seed in sorted(seeds)},
        note=", ".join(
            f"{NAMES[name]} {fmean(values.values()):.2f} %"
            for name in NAMES
            if (values := seen.values(name, held_out))
        ),
        saturated=any(saturated(seen, ("rope", rival)) for rival in RIVALS),
    )


def _ahead(seen: Seen, first: str, rivals: tuple[str, ...]) -> Iterator[Part]:
    for rival in rivals:
        paper = log_odds_of(92.64) - log_odds_of(3.51) if (first, rival) == ("rope", "nope") else None
        yield ahead(seen, first, rival, f"{NAMES[first]} minus {NAMES[rival]}", paper)
