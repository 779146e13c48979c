"""Claim 4: dropout does not remove the deposit."""

from collections.abc import Iterator

from spectrope.claims.base import Claim
from spectrope.claims.gaps import counted_deposits
from spectrope.claims.predictions import InMost
from spectrope.claims.quantities import deposit, shallow
from spectrope.claims.seen import Seen
from spectrope.claims.verdict import Part
from spectrope.claims.without_dropout import EXPLORED, distance_at
from spectrope.training.config import Experiment

RATES = (0.0, 0.1, 0.3)  # None, the paper's, and three times that.


class Dropout(Claim, name="dropout"):
    """The deposit under RoPE at several rates of dropout."""

    number = 4
    title = "Dropout does not remove the deposit"
    statement = "The single-head deposit under RoPE on Task 1 stays when the network is trained with dropout."
    source = "Sec. 5.1"
    prediction = (
        "of seeds that have a deposit in a shallow layer without dropout, most have one there at rates 0.1 "
        "and 0.3"
    )
    test = (
        "RoPE on Task 1 at three rates; the deposit rule as in claim 3. The unit is a seed with a deposit at "
        "rate 0: in others there is nothing to remove. Exact binomial test. Seeds 0 to 5 were looked at "
        "when this test was chosen, and do not count; 12 leave room for seeds without a deposit."
    )
    paper = "no number in the text"
    explored = EXPLORED

    def arms(self, condition: str, scale: str, seed: int) -> dict[str, Experiment]:
        return {f"{p:g}": distance_at(p, "rope", condition, scale, seed) for p in RATES}

    def parts(self, seen: Seen) -> Iterator[Part]:
        found = deposit(shallow(seen.n_layers))
        bare = seen.values("0", found, only_learned=True)
        for p in RATES[1:]:
            kept = seen.values(f"{p:g}", found, only_learned=True)
            yield Part(
                quantity=f"seeds with a deposit without dropout that have one at rate {p:g}",
                prediction=InMost(),
                values={seed: kept[seed] for seed, has in bare.items() if has and seed in kept},
                note=f"without dropout {sum(bare.values()):.0f} of {len(bare)} have one; at this rate, "
                f"in any layer, {counted_deposits(seen, f'{p:g}')}",
            )
