"""Claim 18: does the deposit explain where RoPE falls behind?"""

from collections.abc import Iterator

from spectrope.study.arms import Arms, ahead, distance_at, run_of
from spectrope.study.claim import Claim
from spectrope.study.claims.extrapolation import within_arms
from spectrope.study.predictions import AtLeast
from spectrope.study.quantities import ABLATION, Seen, errors, gap, log_odds
from spectrope.study.rows import StudyRow
from spectrope.study.verdict import Part

RATES = (0.0, 0.1, 0.3)  # Of dropout: RoPE on Task 1 with deposits of different sizes.
CORRELATION = 0.3  # Smallest correlation of interest.


class Paradoxes(Claim, name="paradoxes"):
    """RoPE ahead on Task 1, behind on Task 2, and what deposits have to do with errors."""

    number = 18
    title = "Among runs of RoPE, larger gaps go with more errors"
    statement = (
        "RoPE sometimes underperforms in spite of its theory, and the single-head deposit explains these "
        "performance paradoxes (version 2)."
    )
    source = "Version 2, as its reviews summarise it; the cases and the test are ours"
    prediction = (
        "over runs of RoPE on Task 1 at the same rate of dropout, the largest gap and the log odds of an "
        "error have a correlation of 0.3 or more (headline); RoPE is ahead of NoPE on Task 1, and behind on "
        "Task 2"
    )
    test = (
        "The gap as in claim 3, in any layer, of models that learned the task, at three rates of dropout. "
        "Pearson's correlation once each rate's mean over seeds is taken off and what is left is divided by "
        "its standard deviation, by the jackknife over seeds, as in claim 9. A seed counts once all its "
        "rates have run. It is saturated where fewer than half of these runs make any error."
    )
    history = (
        "Twice as many seeds as of other claims. The claim was stated after its rows at `mini` were there, "
        "so that its word on them is exploratory."
    )
    paper = "no number in the summaries at hand"
    conditions = ("controlled",)
    ours = True
    minimum_seeds = 12  # With six, only a correlation beyond -1 or 1 could have been shown.
    unplanned = "Under `controlled` alone, as the runs at other rates of dropout are."
    tables = (ABLATION,)
    explored = 12
    times = 2

    def arms(self, condition: str, scale: str, seed: int) -> Arms:
        rates = {f"rope/{p:g}": distance_at(p, "rope", condition, scale, seed) for p in RATES}
        both = {
            f"{task}/{name}": run_of(task, name, condition, scale, seed)
            for task in ("distance", "counting")
            for name in ("rope", "nope")
        }
        return rates | both

    def parts(self, seen: Seen) -> Iterator[Part]:
        rates = [f"rope/{p:g}" for p in RATES]
        seeds = seen.complete(rates, gap(), odds_of_error)
        gaps, odds = (
            [seen.values(arm, quantity, only_learned=True) for arm in rates]
            for quantity in (gap(), odds_of_error)
        )
        wrong = {
            rate: list(seen.values(f"rope/{rate:g}", errors, only_learned=True).values()) for rate in RATES
        }
        n = sum(map(len, wrong.values()))
        n_err = sum(count > 0 for some in wrong.values() for count in some)
        flat = ", ".join(f"{rate:g}" for rate, some in wrong.items() if some and not any(some))
        told = f"{n_err} of {n} runs err at all" + f", none at dropout {flat}" * bool(flat)
        yield Part(
            quantity="gap against log odds of an error, over runs of RoPE at the same dropout",
            prediction=AtLeast(CORRELATION, "r"),
            values=within_arms(gaps, odds, seeds),
            saturated=2 * n_err < n,
            note=f"{told}; seeds are pseudo-values of the jackknife",
            beside=told,
        )
        yield ahead(seen, "distance/rope", "distance/nope", "Task 1, RoPE minus NoPE")
        yield ahead(seen, "counting/nope", "counting/rope", "Task 2, NoPE minus RoPE")


def odds_of_error(row: StudyRow) -> float | None:
    """Log odds of a wrong held-out answer."""
    right = log_odds(row)
    return None if right is None else -right
