"""Claim 4: dropout does not remove the deposit."""

from collections.abc import Iterator

from spectrope.claims.arms import distance_at
from spectrope.claims.base import Claim
from spectrope.claims.gaps import counted_deposits
from spectrope.claims.predictions import AtLeast, InRuns
from spectrope.claims.quantities import deposit, shallow
from spectrope.claims.seen import Seen
from spectrope.claims.verdict import Part
from spectrope.claims.without_dropout import EXPLORED
from spectrope.training.config import Experiment

SOME, LOST = 0.1, 0.1  # Shares of runs: fewest with a deposit to lose, most that may be lost.
RATES = (0.0, 0.1, 0.3)  # None, the paper's, and three times that.


class Dropout(Claim, name="dropout"):
    """The deposit under RoPE at several rates of dropout."""

    number = 4
    title = "Dropout does not remove the deposit"
    statement = "The single-head deposit under RoPE on Task 1 stays when the network is trained with dropout."
    source = "Sec. 5.1"
    prediction = (
        "share of runs with a deposit in a shallow layer: at rates 0.1 and 0.3 lower than without dropout by "
        "at most 0.1, given one in more than 10 % of all runs without dropout"
    )
    test = (
        "RoPE on Task 1 at three rates; the deposit rule as in claim 3, 1 or 0 per run. Differences paired "
        "by seed, Student's t; the premise by the binomial test. Seeds 0 to 5 were looked at when this test "
        "was chosen, and do not count. 12 seeds show that deposits are lost in most runs; only many more "
        "would show that none is lost."
    )
    paper = "no number in the text"
    explored = EXPLORED

    def arms(self, condition: str, scale: str, seed: int) -> dict[str, Experiment]:
        return {f"{p:g}": distance_at(p, "rope", condition, scale, seed) for p in RATES}

    def parts(self, seen: Seen) -> Iterator[Part]:
        found = deposit(shallow(seen.n_layers))
        yield Part(
            quantity="runs with a deposit in a shallow layer without dropout",
            prediction=InRuns(SOME),
            values=seen.values("0", found, only_learned=True),
            premise=True,
        )
        for p in RATES[1:]:
            arm = f"{p:g}"
            yield Part(
                quantity=f"a deposit in a shallow layer at rate {arm} minus without dropout",
                prediction=AtLeast(-LOST, "of runs"),
                values=seen.minus(arm, "0", found, only_learned=True),
                note=f"at this rate, in any layer, {counted_deposits(seen, arm)}",
            )
