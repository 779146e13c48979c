"""Claim 4: dropout does not remove the deposit."""

from collections.abc import Iterator

from spectrope.study.arms import DEPTHS, EXPLORED_RATES, NAMES, Arms, distance_at, runs_with_a_deposit
from spectrope.study.claim import EXPLORED_AT, Claim
from spectrope.study.predictions import InRuns, LostInRuns
from spectrope.study.quantities import ABLATION, Seen, deposit, shallow
from spectrope.study.verdict import Part

RATES = {"rope": (0.0, 0.1, 0.3), "alibi": (0.0, 0.1)}  # None, the paper's, and three times that.
LOST = 0.2  # Share of runs that may lose a deposit.
THERE = 0.1  # Share of runs that must have one to lose.


class Dropout(Claim, name="dropout"):
    """Deposits with and without dropout, on the same seeds, none of which was selected by its results."""

    number = 4
    title = "Dropout does not remove the deposit"
    statement = "The single-head deposit under RoPE on Task 1 stays when the network is trained with dropout."
    quote = (
        "Note that all our experiments used dropout, so the deposit pattern is not a phenomenon that can be "
        "improved by ordinary dropout."
    )
    source = (
        'Remark C.1. App. D says the opposite by its letter, "not difficult to improve through dropout"; the '
        "clause that follows there agrees with Remark C.1"
    )
    prediction = (
        "of all seeds, at most 20 % more lose a deposit in the first half of the layers at dropout 0.1 than "
        "gain one (headline), given that more than 10 % have one without dropout"
    )
    test = (
        "Task 1 under RoPE, and ALiBi for comparison, with and without dropout on the same seeds; the "
        "deposit rule as in claim 3, at two depths, of all runs. The difference of the two shares over all "
        "seeds is tested exactly, whatever any seed shows (the score statistic of pairs, its p-value the "
        "largest over the share that is not known). Three times as many seeds as of other claims, at `mid` "
        "of RoPE under `controlled` alone: fewer than 17 pairs cannot support it, and six cannot contradict "
        "it either. The first edition judged only seeds with a deposit without dropout. Why it is asked: "
        f"{EXPLORED_RATES}"
    )
    paper = "no number in the text; all runs of the authors had dropout, at 0.1"
    tables = (ABLATION,)
    least_layers = 6
    minimum_seeds = 17
    times = 3

    def arms(self, condition: str, scale: str, seed: int) -> Arms:
        rates = {name: some if scale == EXPLORED_AT else some[:2] for name, some in RATES.items()}
        return {
            f"{name}/{p:g}": distance_at(p, name, condition, scale, seed)
            for name, some in rates.items()
            for p in some
        }

    def parts(self, seen: Seen) -> Iterator[Part]:
        rates = {arm: arm.split("/") for arm in seen.arms}
        layers = shallow(seen.n_layers)
        yield Part(
            quantity="RoPE without dropout, runs with a deposit in the first half of the layers",
            prediction=InRuns(THERE),
            values=seen.values("rope/0", deposit(layers)),
            premise=True,
        )
        for arm, (name, rate) in rates.items():
            if float(rate):
                for words, depth in DEPTHS.items():
                    place = f"in the {words} of the layers"
                    yield Part(
                        quantity=f"{NAMES[name]}, deposits {place} lost at dropout {rate}",
                        prediction=LostInRuns(LOST),
                        values=seen.minus(f"{name}/0", arm, deposit(shallow(seen.n_layers, depth))),
                        for_comparison=name != "rope",
                    )
        for arm, (name, rate) in rates.items():
            for words, depth in DEPTHS.items():
                quantity = (
                    f"{NAMES[name]}, runs with a deposit in the {words} of the layers at dropout {rate}"
                )
                yield runs_with_a_deposit(
                    seen, arm, quantity, shallow(seen.n_layers, depth), for_comparison=True
                )
