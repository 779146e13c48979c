"""Claim 4: dropout does not remove the deposit."""

from collections.abc import Iterator, Sequence
from itertools import accumulate

from spectrope.lab import Experiment, Job
from spectrope.study.arms import EXPLORED_RATES, distance_at
from spectrope.study.claim import Claim
from spectrope.study.predictions import InRuns, Values
from spectrope.study.quantities import ABLATION, Seen, deposit, shallow
from spectrope.study.rows import StudyRows
from spectrope.study.verdict import Part

RATES = (0.0, 0.1, 0.3)  # None, the paper's, and three times that.
LIKELY = 3  # One seed in so many had a deposit without dropout among the first six that counted.
ENOUGH = 2  # Times the seeds asked for, of those with a deposit.


class Dropout(Claim, name="dropout"):
    """The deposit under RoPE at several rates of dropout, on the first so many seeds with one to lose."""

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
        "deposit at rate 0 have none to lose and are not trained with dropout. Seeds run without it, in "
        "order, until twice as many as other claims take have a deposit, or twelve times as many have run: "
        "when to stop does not depend on what dropout does. If a deposit were drawn anew in each training, "
        "dropout or not, as many of them would have one as of all seeds without dropout, which is told "
        f"beside. Why it is asked: {EXPLORED_RATES}"
    )
    paper = "no number in the text; all runs of the authors had dropout, at 0.1"
    planned_later = "each rate of dropout, for seeds that have a deposit without it; more seeds, if few do"
    tables = (ABLATION,)
    times = 12
    later = (
        "; how many there are was settled once the first six that count had run without dropout, and once "
        "more when the first 36 under `described` had left 5 to judge, which decide nothing "
        "(0.60 [0.15, 0.95] at rate 0.1, 0.40 [0.05, 0.85] at 0.3)"
    )

    def arms(self, condition: str, scale: str, seed: int) -> dict[str, Experiment]:
        return {f"{p:g}": distance_at(p, "rope", condition, scale, seed) for p in RATES}

    def n_judged(self, seeds: Sequence[int]) -> int:
        """How many seeds with a deposit are enough."""
        return ENOUGH * len(seeds) // self.times

    def see(self, rows: StudyRows, condition: str, scale: str, seeds: Sequence[int] | None = None) -> Seen:
        """The rows of the seeds that are planned."""
        if seeds is None:
            return super().see(rows, condition, scale)
        needed, precision = self._needed(seeds, rows, condition, scale)
        return self.look(rows, condition, scale, self.numbers(needed), precision)

    def jobs(
        self, condition: str, scale: str, seeds: Sequence[int], rows: StudyRows | None = None
    ) -> list[Job]:
        """The seeds needed without dropout, and with it those that have a deposit to lose."""
        rows = rows or StudyRows()
        needed, precision = self._needed(seeds, rows, condition, scale)
        there = self._deposits(self.look(rows, condition, scale, self.numbers(needed), precision))
        return [
            Job(one, self.measured(arm, one))
            for one, arm in self.named(condition, scale, needed).items()
            if arm == "0" or there.get(one.seed)
        ]

    def _needed(
        self, seeds: Sequence[int], rows: StudyRows, condition: str, scale: str
    ) -> tuple[Sequence[int], str | None]:
        """Seeds in order until enough have a deposit without dropout, or may have; the precision that counts.

        It is that of most rows without dropout of the seeds that are needed in any case, so that no other row
        moves it. A seed that has yet to run counts 1, and one with a deposit `LIKELY`.
        """
        numbers = self.numbers(seeds)
        without = {seed: {"0": self.arms(condition, scale, seed)["0"]} for seed in numbers}
        first = Seen.of(rows, {seed: without[seed] for seed in numbers[: self.n_judged(seeds)]})
        seen = Seen.of(rows, without, precision=first.precision)
        there = self._deposits(seen)
        jobs = [Job(arms["0"], self.measured("0", arms["0"])) for arms in without.values()]
        counts = accumulate(
            LIKELY * there.get(job.experiment.seed, 0) if rows.covers(job) else 1 for job in jobs
        )
        enough = LIKELY * self.n_judged(seeds)
        return seeds[: 1 + sum(count < enough for count in counts)], seen.precision

    def _deposits(self, seen: Seen) -> Values:
        """By seed, whether a network that has learned without dropout has a deposit in a shallow layer."""
        return seen.values("0", deposit(shallow(seen.n_layers)), only_learned=True)

    def parts(self, seen: Seen) -> Iterator[Part]:
        shallow_deposit = deposit(shallow(seen.n_layers))
        without, deep = self._deposits(seen), seen.values("0", deposit(), only_learned=True)
        for p in RATES[1:]:
            arm = f"{p:g}"
            there = seen.values(arm, shallow_deposit, only_learned=True)
            chosen = {seed: value for seed, value in there.items() if without.get(seed)}
            deeper = seen.values(arm, deposit(), only_learned=True)
            yield Part(
                quantity=f"a deposit in a shallow layer at rate {arm}, given one without dropout",
                prediction=InRuns(),
                values=chosen,
                note=f"without dropout there is one in {_share(without)}, in any layer in {_share(deep)}; "
                f"of those judged, in any layer in {_share({seed: deeper[seed] for seed in chosen})}",
            )


def _share(deposits: Values) -> str:
    return f"{sum(deposits.values()):.0f} of {len(deposits)} runs"
