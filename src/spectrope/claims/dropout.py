"""Claim 4: dropout does not remove the deposit."""

from collections.abc import Iterator, Sequence

from spectrope.claims.arms import EXPLORED_RATES, distance_at
from spectrope.claims.base import Claim
from spectrope.claims.predictions import InRuns, Values
from spectrope.claims.quantities import ABLATION, deposit, shallow
from spectrope.claims.seen import Seen
from spectrope.claims.verdict import Part
from spectrope.sweeps.job import Job
from spectrope.sweeps.rows import Rows
from spectrope.training.config import Experiment

RATES = (0.0, 0.1, 0.3)  # None, the paper's, and three times that.
LIKELY = 3  # One seed in so many had a deposit without dropout among the first six that counted.


class Dropout(Claim, name="dropout"):
    """The deposit under RoPE at several rates of dropout."""

    number = 4
    title = "Dropout does not remove the deposit"
    statement = "The single-head deposit under RoPE on Task 1 stays when the network is trained with dropout."
    source = "Remark C.1; App. D, by its sense"
    prediction = (
        "of seeds with a deposit in a shallow layer without dropout, more than half have one with dropout as "
        "well, at rate 0.1 and at 0.3"
    )
    test = (
        "RoPE on Task 1 at three rates; the deposit rule as in claim 3; the binomial test. Seeds without a "
        "deposit at rate 0 have none to lose and are not trained with dropout, hence six times as many as of "
        f"other claims; power is told of one in {LIKELY}, as many as are likely to have one. If a deposit "
        "were drawn anew in each training, dropout or not, as many of them would have one as of all seeds "
        f"without dropout, which is told beside. Why it is asked: {EXPLORED_RATES}"
    )
    paper = "no number in the text; all runs of the authors had dropout, at 0.1"
    planned_later = "each rate of dropout, for seeds that have a deposit without it"
    tables = (ABLATION,)
    times = 6
    later = "; how many there are was settled once the first six that count had run without dropout"

    def arms(self, condition: str, scale: str, seed: int) -> dict[str, Experiment]:
        return {f"{p:g}": distance_at(p, "rope", condition, scale, seed) for p in RATES}

    def jobs(self, condition: str, scale: str, seeds: Sequence[int], rows: Rows | None = None) -> list[Job]:
        """All seeds without dropout, and with it those that have a deposit to lose."""
        seen = self.see(rows or Rows(), condition, scale, seeds)
        there = seen.values("0", deposit(shallow(seen.n_layers)), only_learned=True)
        return [
            Job(one, self.measured(arm, one))
            for one, arm in self.named(condition, scale, seeds).items()
            if arm == "0" or there.get(one.seed)
        ]

    def power(self, seeds: Sequence[int], rows: Rows, scale: str = "mini") -> str:
        """Of the seeds that are likely to have a deposit without dropout."""
        return super().power(seeds[: len(seeds) // LIKELY], rows, scale)

    def parts(self, seen: Seen) -> Iterator[Part]:
        found = deposit(shallow(seen.n_layers))
        without, deep = (seen.values("0", one, only_learned=True) for one in (found, deposit()))
        for p in RATES[1:]:
            arm = f"{p:g}"
            there = seen.values(arm, found, only_learned=True)
            chosen = {seed: value for seed, value in there.items() if without.get(seed)}
            deeper = seen.values(arm, deposit(), only_learned=True)
            yield Part(
                quantity=f"a deposit in a shallow layer at rate {arm}, given one without dropout",
                prediction=InRuns(),
                values=chosen,
                note=f"without dropout there is one in {_share(without)}, in any layer in {_share(deep)}; "
                f"of those judged, in any layer in {_share({seed: deeper[seed] for seed in chosen})}",
            )


def _share(found: Values) -> str:
    return f"{sum(found.values()):.0f} of {len(found)} runs"
