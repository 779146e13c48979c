"""Predictions about deposits that several claims make of their arms."""

from collections.abc import Iterable

from spectrope.lab.ablation.thresholds import DEFAULT_RULE
from spectrope.study.predictions import AtLeast, AtMost, InRuns
from spectrope.study.quantities import deposit, gap
from spectrope.study.seen import Seen
from spectrope.study.verdict import Part

GAP = DEFAULT_RULE.gap  # Points by which one head must stand out.


def one_head_stands_out(
    seen: Seen, arm: str, words: str, layers: Iterable[int] | None = None, *, premise: bool = False
) -> Part:
    """The gap is at least that of the deposit rule in one of some layers, of models that learned the task.

    Args:
        seen: The claim's rows.
        arm: Whose.
        words: Name of the arm and the layers.
        layers: Counted from 0; None means all.
        premise: Whether the claim has nothing to say unless this holds.
    """
    values = seen.values(arm, gap(layers), only_learned=True)
    note = "" if premise else f"in any layer, {counted_deposits(seen, arm)}"
    return Part(quantity=words, prediction=AtLeast(GAP), values=values, premise=premise, note=note)


def no_head_stands_out(seen: Seen, arm: str, words: str, layers: Iterable[int] | None = None) -> Part:
    """The gap is at most that of the deposit rule in each of some layers, of models that learned or not."""
    note = f"in any layer, {counted_deposits(seen, arm)}"
    return Part(quantity=words, prediction=AtMost(GAP), values=seen.values(arm, gap(layers)), note=note)


def most_have_a_deposit(seen: Seen, arm: str, words: str, layers: Iterable[int] | None = None) -> Part:
    """The deposit rule finds a deposit in one of some layers, in most runs."""
    values = seen.values(arm, deposit(layers), only_learned=True)
    return Part(quantity=words, prediction=InRuns(), values=values)


def counted_deposits(seen: Seen, arm: str) -> str:
    """In how many of an arm's runs that learned the task the rule finds a deposit in any layer."""
    found = seen.values(arm, deposit(), only_learned=True)
    return f"a deposit in {sum(found.values()):.0f} of {len(found)} runs that learned the task"
