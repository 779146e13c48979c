"""Claim 4: dropout does not remove the deposit."""

from collections.abc import Iterator

from spectrope.claims.arms import EXPLORED_RATES, distance_at
from spectrope.claims.base import Claim
from spectrope.claims.gaps import counted_deposits
from spectrope.claims.predictions import InRuns
from spectrope.claims.quantities import ABLATION, deposit, shallow
from spectrope.claims.seen import Seen
from spectrope.claims.verdict import Part
from spectrope.training.config import Experiment

RATES = (0.0, 0.1, 0.3)  # None, the paper's, and three times that.


class Dropout(Claim, name="dropout"):
    """The deposit under RoPE at several rates of dropout."""

    number = 4
    title = "Dropout does not remove the deposit"
    statement = "The single-head deposit under RoPE on Task 1 stays when the network is trained with dropout."
    source = "Sec. 5.1"
    prediction = (
        "of seeds with a deposit in a shallow layer without dropout, more than half have one with dropout as "
        "well, at rate 0.1 and at 0.3"
    )
    test = (
        "RoPE on Task 1 at three rates; the deposit rule as in claim 3; the binomial test. Seeds without a "
        "deposit at rate 0 have none to lose and say nothing, hence three times as many as of other claims; "
        f"power is told as if all had one. Why it is asked: {EXPLORED_RATES}"
    )
    paper = "no number in the text"
    tables = (ABLATION,)
    times = 3

    def arms(self, condition: str, scale: str, seed: int) -> dict[str, Experiment]:
        return {f"{p:g}": distance_at(p, "rope", condition, scale, seed) for p in RATES}

    def parts(self, seen: Seen) -> Iterator[Part]:
        found = deposit(shallow(seen.n_layers))
        without = seen.values("0", found, only_learned=True)
        for p in RATES[1:]:
            arm = f"{p:g}"
            there = seen.values(arm, found, only_learned=True)
            yield Part(
                quantity=f"a deposit in a shallow layer at rate {arm}, given one without dropout",
                prediction=InRuns(),
                values={seed: value for seed, value in there.items() if without.get(seed)},
                note=f"in any layer, without dropout {counted_deposits(seen, '0')}, with it "
                f"{counted_deposits(seen, arm)}",
            )
