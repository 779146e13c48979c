"""Positive control: do runs of the public code, as `released` has them, show what the paper prints?"""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import combinations

from spectrope.lab import Experiment, experiment
from spectrope.stats import MIN_SEEDS
from spectrope.study.arms import NAMES_AND_MLA, TASKS, WHOLE, ahead, length_only, untrained
from spectrope.study.claims.distance_overfitting import OVERFIT
from spectrope.study.claims.latent_attention import TABLE_1
from spectrope.study.conditions import RELEASED
from spectrope.study.page.accuracies import trained
from spectrope.study.predictions import AtLeast, Within
from spectrope.study.quantities import Seen, fitted, held_out, overfit
from spectrope.study.rows import StudyRows
from spectrope.study.study import Study
from spectrope.study.verdict import Part, PartResult, Word

NEAR = 10.0  # Points by which a mean may differ from the accuracy of Table 1.
ALIKE = 5.0  # The same of two training accuracies that figure 2 shows as one.
STATED = datetime(2026, 11, 28, 23, 14, tzinfo=UTC)  # When the checks and their tolerances were committed.
ANSWERS: dict[Word, str] = {"reproduced": "as in the paper", "contradicted": "not as in the paper"}


@dataclass(frozen=True, kw_only=True)
class Check:
    """One thing that the paper shows, looked for in the runs.

    Args:
        place: Where the paper has it, such as "Table 1, Task 1".
        result: What the runs show.
        known: Whether all of its runs had ended when it was stated.
    """

    place: str
    result: PartResult
    known: bool

    @property
    def answer(self) -> str:
        """Whether the runs show it, in words."""
        if not self.result.n_seeds:
            return "not run"
        if self.result.n_seeds < MIN_SEEDS:
            return f"open: {self.result.n_seeds} of at least {MIN_SEEDS} seeds"
        if not self.result.enough:
            return "open: planned seeds wait for runs"
        return ANSWERS.get(self.result.word, f"open: {self.result.word}")


@dataclass(frozen=True, kw_only=True)
class PositiveControl:
    """What `released` shows of the paper's Table 1 and figure 2.

    Args:
        checks: In the order of the paper.
        settings: How the runs differ from the paper's settings, as name, the paper's value and that of the
            runs.
    """

    checks: Sequence[Check]
    settings: Sequence[tuple[str, str, str]]

    def summary(self) -> str:
        """All checks in two sentences."""
        counts = Counter(one.answer.partition(":")[0] for one in self.checks)
        told = ", ".join(f"{n} {answer}" for answer, n in counts.items())
        word = (
            f"`{RELEASED}` reproduces Table 1 and figure 2 within the tolerances below"
            if set(counts) == {ANSWERS["reproduced"]}
            else f"`{RELEASED}` does not reproduce all of Table 1 and figure 2"
            if ANSWERS["contradicted"] in counts
            else f"Whether `{RELEASED}` reproduces Table 1 and figure 2 is open"
        )
        new = [one for one in self.checks if not one.known]
        answered = sum(one.answer in ANSWERS.values() for one in new)
        return (
            f"{word}: of {len(self.checks)} checks, {told}. Of the {len(new)} that were stated before their "
            f"runs, {answered} have an answer."
        )

    def narrower(self) -> list[str]:
        """The accuracies of Table 1 whose answer would be another within `ALIKE` points."""
        return [
            one.result.part.quantity
            for one in self.checks
            if one.result.enough
            and one.result.part.prediction == Within(NEAR)
            and PartResult.of(replace(one.result.part, prediction=Within(ALIKE)), MIN_SEEDS).word
            != one.result.word
        ]


def positive_control(study: Study, rows: StudyRows) -> PositiveControl | None:
    """The control at a scale that has the paper's depth and heads; None at others, and without `released`."""
    if study.scale not in WHOLE or RELEASED not in study.conditions:
        return None
    one, other = (trained(study, rows, task, RELEASED) for task in ("distance", "counting"))
    stated = [
        ("Table 1, Task 1", one, (*_order(one, ("rope", "mla", "nope")), *_values(one, "distance"))),
        ("Table 1, Task 2", other, (*_order(other, ("mla", "nope", "rope")), *_values(other, "counting"))),
        ("figure 2, Task 1", one, _figure_2(one)),
    ]
    checks = [
        Check(
            place=place,
            result=PartResult.of(part, MIN_SEEDS, seen.waiting),
            known=_had_ended(seen, arms),
        )
        for place, seen, parts in stated
        for arms, part in parts
    ]
    return PositiveControl(checks=checks, settings=list(_settings(study.scale)))


def _had_ended(seen: Seen, arms: Collection[str]) -> bool:
    """Whether these arms had runs, all of which had ended when the checks were stated."""
    ends = [row.facts["finished_at"] for (arm, _), row in seen.rows.items() if arm in arms]
    have = {arm for arm, _ in seen.rows if arm in arms}
    return have == set(arms) and all(datetime.fromisoformat(end) < STATED for end in ends)


Stated = tuple[tuple[str, ...], Part]  # The arms of a check, and what it looks for.


def _order(seen: Seen, encodings: tuple[str, ...]) -> Iterator[Stated]:
    """Each is ahead of those after it."""
    for first, second in combinations(encodings, 2):
        yield _ahead(seen, first, second)


def _ahead(seen: Seen, first: str, second: str) -> Stated:
    return (first, second), ahead(
        seen, first, second, f"{NAMES_AND_MLA[first]} minus {NAMES_AND_MLA[second]}"
    )


def _values(seen: Seen, task: str) -> Iterator[Stated]:
    """The accuracies themselves."""
    for name, printed in TABLE_1[task].items():
        yield (
            (name,),
            Part(
                quantity=f"{NAMES_AND_MLA[name]}, held-out accuracy minus the printed {printed:.2f} %",
                prediction=Within(NEAR),
                values={seed: value - printed for seed, value in seen.values(name, held_out).items()},
                untrained=untrained(seen, (name,)),
                note=_cannot_fail(seen, name, printed),
            ),
        )


def _cannot_fail(seen: Seen, name: str, printed: float) -> str:
    """That an encoding that does not see the order of tokens cannot be farther off; else empty."""
    row = next((row for (arm, _), row in seen.rows.items() if arm == name == "nope"), None)
    one = None if row is None else Experiment.of(row.experiment)
    best = None if one is None else length_only(one)
    if best is None or best > printed + NEAR:
        return ""
    return f"cannot fail: without the order of tokens at most {best:.1f} % are possible here"


def _figure_2(seen: Seen) -> Iterator[Stated]:
    """RoPE first, absolute second, random as good on training examples and worse on others."""
    yield _ahead(seen, "rope", "sinusoidal")
    for rival in ("random", "alibi", "nope", "t5"):
        yield _ahead(seen, "sinusoidal", rival)
    both = ("random", "sinusoidal")
    for words, prediction, quantity in (
        ("training accuracy", Within(ALIKE), fitted),
        ("training minus held-out accuracy", AtLeast(OVERFIT), overfit),
    ):
        yield (
            both,
            Part(
                quantity=f"random minus absolute, {words}",
                prediction=prediction,
                values=seen.minus(*both, quantity),
                untrained=untrained(seen, both),
            ),
        )


def _settings(scale: str) -> Iterator[tuple[str, str, str]]:
    """Settings that the paper states and that the runs of a scale have otherwise."""
    for task, words in TASKS.items():
        theirs, ours = (
            _stated(experiment(task, "rope", scale=name, condition=RELEASED)) for name in ("paper", scale)
        )
        for name, paper in theirs.items():
            if paper != ours[name]:
                yield f"{words}, `{name}`", paper, ours[name]


def _stated(one: Experiment) -> dict[str, str]:
    """Settings of a run by name."""
    sizes = {name: getattr(one.model, name) for name in ("n_layers", "n_heads", "d_model", "d_ff")}
    numbers = vars(one.task) | sizes | vars(one.training) | {"n_train": one.n_train, "n_test": one.n_test}
    return {name: f"{value:,}" if isinstance(value, int) else f"{value}" for name, value in numbers.items()}
