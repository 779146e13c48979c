"""Arms and predictions that several claims share."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from math import log
from statistics import fmean

from spectrope.encodings import EncodingConfig
from spectrope.lab import DEFAULT_RULE, Experiment, experiment
from spectrope.study.predictions import AtLeast, AtMost, InRuns, Values
from spectrope.study.quantities import Seen, deposit, errors, fitted, gap, held_out, hits, log_odds
from spectrope.study.verdict import Limit, Part
from spectrope.tasks.distance import Distance

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
ODDS = 0.2  # The same in log odds: 5 points at 50 %, 3 at 80 %, 0.2 at 99 %.
TIME = 0.1  # Smallest difference in the time to learn, as a share of the run's steps.
FEW = 5  # Examples per run: fewer errors, or right answers, tell no two arms apart.
FITTED = 90.0  # Percent of the training examples; below it, training counts as unfinished.
DEPTHS = {"first half": 1 / 2, "first two thirds": 2 / 3}  # Of the layers, in which a deposit is shallow.
# Where the own number of a scale leaves a task half learned: Task 2 was at 70 to 82 % on explored seeds.
EPOCHS: Mapping[tuple[str, str], int] = {("mini", "counting"): 12}

WHOLE = ("mid", "paper")  # Scales at which claims about one task's figures run the other task's as well.

EXPLORED_RATES = (
    "of seeds 0 to 5 at `mini`, which do not count, 4 gave RoPE a deposit in layer 0 without dropout and "
    "none at the paper's rate, 0.1."
)
WITHOUT_DROPOUT = f"Without dropout: {EXPLORED_RATES}"  # Why claims about deposits have runs of their own.


Arms = dict[str, Experiment]  # Runs of the decoder of one seed, by the names that a claim calls them.

planned = cache(experiment)  # Claims share runs, and build them anew for each look at the rows.


def run_of(task: str, encoding: str, condition: str, scale: str, seed: int) -> Experiment:
    """A run of a task, trained until it is learned: that of `spectrope compare`, except for the number of
    `EPOCHS`."""
    epochs = EPOCHS.get((scale, task))
    return planned(task, encoding, scale=scale, condition=condition, seed=seed, epochs=epochs)


def by_encoding(task: str, condition: str, scale: str, seed: int, encodings: Iterable[str] = NAMES) -> Arms:
    """One such run per encoding, under the encodings' names."""
    return {name: run_of(task, name, condition, scale, seed) for name in encodings}


@cache
def distance_at(
    dropout: float, encoding: str | EncodingConfig, condition: str, scale: str, seed: int
) -> Experiment:
    """Task 1 at a rate of dropout."""
    one = planned("distance", encoding, scale=scale, condition=condition, seed=seed)
    return replace(one, model=replace(one.model, dropout=dropout))


def ahead(
    seen: Seen, first: str, second: str, words: str, paper: float | None = None, prefix: str = ""
) -> Part:
    """Part: the odds of a correct held-out answer are greater in one arm than in another."""
    arms = (f"{prefix}{first}", f"{prefix}{second}")
    return Part(
        quantity=f"{words}, held-out accuracy",
        prediction=AtLeast(ODDS, "log odds"),
        values=seen.minus(*arms, log_odds),
        paper=paper,
        saturated=saturated(seen, arms),
        limit=limit_of(seen, *arms),
        untrained=untrained(seen, arms),
        note=in_points(seen, *arms),
    )


def saturated(seen: Seen, arms: Iterable[str]) -> bool:
    """Whether all of these arms make fewer than `FEW` errors per run, or all give fewer correct answers than
    that."""
    wrong = [fmean(seen.values(arm, errors).values() or [0.0]) for arm in arms]
    right = [fmean(seen.values(arm, hits).values() or [0.0]) for arm in arms]
    return max(wrong) < FEW or max(right) < FEW


def limit_of(seen: Seen, first: str, second: str) -> Limit:
    """Whether a difference of log odds is a bound on the true one, because an arm is almost always right, or
    wrong. The half example added to each count then draws the arm's log odds towards zero. If this applies to
    both arms in opposite directions, the difference is not measured.
    """
    always, never = (
        {arm for arm in (first, second) if _is_rare(seen.values(arm, quantity))}
        for quantity in (errors, hits)
    )
    over, under = first in always or second in never, second in always or first in never
    if over and under:
        return "not measured"
    return "at least" if over else "at most" if under else ""


def _is_rare(counts: Values) -> bool:
    return bool(counts) and fmean(counts.values()) < FEW


def in_points(seen: Seen, first: str, second: str) -> str:
    """Mean accuracies of two arms, since log odds are hard to read, and errors where one has few."""
    found = [seen.values(arm, held_out) for arm in (first, second)]
    if not all(found):
        return ""
    means = " and ".join(f"{fmean(values.values()):.2f}" for values in found)
    counts = f", {counted_errors(seen, first, second)}" if limit_of(seen, first, second) else ""
    return f"{means} %{counts}"


def counted_errors(seen: Seen, first: str, second: str) -> str:
    """Errors of two arms, of as many answers, over all seeds."""
    wrong, right = (
        [sum(seen.values(arm, one).values()) for arm in (first, second)] for one in (errors, hits)
    )
    return f"errors {wrong[0]:,.0f} and {wrong[1]:,.0f} of {wrong[0] + right[0]:,.0f}"


def untrained(seen: Seen, arms: Iterable[str]) -> str:
    """The arms with a training accuracy below `FITTED`, and their accuracies. Longer training could change
    the result of a comparison with such an arm.
    """
    means = {arm: fmean(values.values()) for arm in arms if (values := seen.values(arm, fitted))}
    return ", ".join(f"{arm_name(arm)} {mean:.1f} %" for arm, mean in means.items() if mean < FITTED)


def arm_name(arm: str) -> str:
    """An arm in words: its encoding or number of heads with RoPE, and its switch or condition."""
    *_, last = words = arm.split("/")
    if last.isdigit():
        return f"RoPE on {last} heads"
    return ", ".join(NAMES_AND_MLA.get(word, word) for word in words if word not in TASKS)


def length_only(experiment: Experiment) -> float | None:
    """Best accuracy on Task 1, in percent, of a model that does not see the order of tokens; None on other
    tasks."""
    task = experiment.task.build()
    return 100 * task.length_only_accuracy() if isinstance(task, Distance) else None


def runs_with_a_deposit(
    seen: Seen, arm: str, words: str, layers: Iterable[int], *, for_comparison: bool = False
) -> Part:
    """Part: in most of all runs, the deposit rule finds a deposit in at least one of these layers.

    Args:
        seen: The claim's rows.
        arm: Whose.
        words: Name of the arm and the layers.
        layers: Counted from 0.
        for_comparison: Whether nothing is predicted of it.
    """
    values = seen.values(arm, deposit(tuple(layers)))
    return Part(quantity=words, prediction=InRuns(), values=values, for_comparison=for_comparison)


def log_odds_of(percent: float) -> float:
    """Of an accuracy in percent that the paper prints."""
    return log(percent / (100 - percent))


GAP = DEFAULT_RULE.gap  # Points by which one head must stand out.


def one_head_stands_out(
    seen: Seen, arm: str, words: str, layers: Iterable[int] | None = None, *, premise: bool = False
) -> Part:
    """Part: in models that learned the task, the gap reaches the threshold of the deposit rule in at least
    one of these layers.

    Args:
        seen: The claim's rows.
        arm: Whose.
        words: Name of the arm and the layers.
        layers: Counted from 0; None means all.
        premise: Whether the claim has nothing to say unless this holds.
    """
    values = seen.values(arm, gap(layers), only_learned=True)
    note = "" if premise else f"in any layer, {counted_deposits(seen, arm)}"
    return Part(quantity=words, prediction=AtLeast(GAP, null=None), values=values, premise=premise, note=note)


def no_head_stands_out(seen: Seen, arm: str, words: str, layers: Iterable[int] | None = None) -> Part:
    """The gap is at most that of the deposit rule in each of some layers, of models that learned the task."""
    note = f"in any layer, {counted_deposits(seen, arm)}"
    values = seen.values(arm, gap(layers), only_learned=True)
    return Part(quantity=words, prediction=AtMost(GAP), values=values, note=note)


def counted_deposits(seen: Seen, arm: str) -> str:
    """In how many of an arm's runs the rule finds a deposit in any layer, and in each."""
    deposits = seen.values(arm, deposit())
    layers = [f"{sum(seen.values(arm, deposit((layer,))).values()):.0f}" for layer in range(seen.n_layers)]
    return f"a deposit in {sum(deposits.values()):.0f} of {len(deposits)} runs (by layer {', '.join(layers)})"
