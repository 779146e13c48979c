"""Arms and predictions that several claims share."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from spectrope.encodings import EncodingConfig
from spectrope.lab import DEFAULT_RULE, Experiment, experiment
from spectrope.study.predictions import AtLeast, AtMost, InRuns
from spectrope.study.quantities import Seen, deposit, gap
from spectrope.study.verdict import Part

# The paper's six encodings, in the digest's names. Its "relative" is T5's in the text, a learned table in its
# code; switch R4 turns the one into the other, so both stand under the same name.
NAMES = {
    "rope": "RoPE",
    "sinusoidal": "absolute",
    "random": "random",
    "alibi": "ALiBi",
    "nope": "NoPE",
    "t5": "relative",
}
NAMES_AND_MLA = NAMES | {"mla": "MLA"}
TASKS = {"distance": "Task 1", "counting": "Task 2"}
RIVALS = tuple(name for name in NAMES if name != "rope")
ACCURACY = 2.0  # Smallest difference in accuracy of interest, in points.
# Where the own number of a scale leaves a task half learned: Task 2 was at 70 to 82 % on explored seeds.
EPOCHS: Mapping[tuple[str, str], int] = {("mini", "counting"): 12}

EXPLORED_RATES = (
    "of seeds 0 to 5 at `mini`, which do not count, 4 gave RoPE a deposit in layer 0 without dropout and "
    "none at the paper's rate, 0.1."
)
WITHOUT_DROPOUT = f"Without dropout: {EXPLORED_RATES}"  # Why claims about deposits have runs of their own.


def run_of(task: str, encoding: str, condition: str, scale: str, seed: int) -> Experiment:
    """A run of a task, trained until it is learned: what `spectrope compare` makes, but for `EPOCHS`."""
    epochs = EPOCHS.get((scale, task))
    return experiment(task, encoding, scale=scale, condition=condition, seed=seed, epochs=epochs)


def by_encoding(
    task: str, condition: str, scale: str, seed: int, encodings: Iterable[str] = NAMES
) -> dict[str, Experiment]:
    """One such run per encoding, under the encodings' names."""
    return {name: run_of(task, name, condition, scale, seed) for name in encodings}


def distance_at(
    dropout: float, encoding: str | EncodingConfig, condition: str, scale: str, seed: int
) -> Experiment:
    """Task 1 at a rate of dropout."""
    one = experiment("distance", encoding, scale=scale, condition=condition, seed=seed)
    return replace(one, model=replace(one.model, dropout=dropout))


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
    deposits = seen.values(arm, deposit(), only_learned=True)
    return f"a deposit in {sum(deposits.values()):.0f} of {len(deposits)} runs that learned the task"
