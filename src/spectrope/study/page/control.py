"""Positive control: do runs of the public code, as `released` has them, show what the paper prints?"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations

from spectrope.lab import Experiment, experiment
from spectrope.stats import MIN_SEEDS
from spectrope.study.arms import NAMES_AND_MLA, TASKS, WHOLE, ahead, untrained
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
ANSWERS: dict[Word, str] = {"reproduced": "as in the paper", "contradicted": "not as in the paper"}


@dataclass(frozen=True, kw_only=True)
class PositiveControl:
    """What `released` shows of the paper's Table 1 and figure 2.

    Args:
        checks: By where the paper has it, such as "Table 1, Task 1".
        settings: How the runs differ from the paper's settings, as name, the paper's value and that of the
            runs.
    """

    checks: Mapping[str, list[PartResult]]
    settings: list[tuple[str, str, str]]

    def summary(self) -> str:
        """One sentence on all checks."""
        every = [one for checks in self.checks.values() for one in checks]
        failed = [one for one in every if one.word == "contradicted"]
        shown = sum(one.word == "reproduced" for one in every)
        counts = f"{shown} of {len(every)} checks are as in the paper, {len(failed)} are not"
        open_ones = len(every) - shown - len(failed)
        if shown == len(every):
            return f"`{RELEASED}` reproduces Table 1 and figure 2 within these tolerances."
        told = f"{counts}, and {open_ones} are open" if open_ones else counts
        if failed:
            return f"`{RELEASED}` does not reproduce all of Table 1 and figure 2: {told}."
        return f"Whether `{RELEASED}` reproduces Table 1 and figure 2 is open: {told}."

    def lines(self) -> Iterator[tuple[str, PartResult, str]]:
        """Each check: its place in the paper, its result, and the answer."""
        for place, checks in self.checks.items():
            for one in checks:
                yield place, one, answer(one)


def positive_control(study: Study, rows: StudyRows) -> PositiveControl | None:
    """The control at a scale that has the paper's depth and heads; None at others, and without `released`."""
    if study.scale not in WHOLE or RELEASED not in study.conditions:
        return None
    one, other = (trained(study, rows, task, RELEASED) for task in ("distance", "counting"))
    checks = {
        "Table 1, Task 1": [*_order(one, ("rope", "mla", "nope")), *_values(one, "distance")],
        "Table 1, Task 2": [*_order(other, ("mla", "nope", "rope")), *_values(other, "counting")],
        "figure 2, Task 1": list(_figure_2(one)),
    }
    judged = {
        place: [PartResult.of(part, MIN_SEEDS, seen.waiting if part.values else ()) for part in parts]
        for place, parts in checks.items()
        for seen in [other if "Task 2" in place else one]
    }
    return PositiveControl(checks=judged, settings=list(_settings(study.scale)))


def answer(check: PartResult) -> str:
    """The answer of a check, in words."""
    if not check.n_seeds:
        return "not run"
    if not check.enough:
        return f"open: {check.n_seeds} of at least {MIN_SEEDS} seeds"
    return ANSWERS.get(check.word, f"open: {check.word}")


def _order(seen: Seen, encodings: tuple[str, ...]) -> Iterator[Part]:
    """Each is ahead of those after it."""
    for first, second in combinations(encodings, 2):
        yield ahead(seen, first, second, f"{NAMES_AND_MLA[first]} minus {NAMES_AND_MLA[second]}")


def _values(seen: Seen, task: str) -> Iterator[Part]:
    """The accuracies themselves."""
    for name, printed in TABLE_1[task].items():
        yield Part(
            quantity=f"{NAMES_AND_MLA[name]}, held-out accuracy minus the printed {printed:.2f} %",
            prediction=Within(NEAR),
            values={seed: value - printed for seed, value in seen.values(name, held_out).items()},
            untrained=untrained(seen, (name,)),
        )


def _figure_2(seen: Seen) -> Iterator[Part]:
    """RoPE first, absolute second, random as good on training examples and worse on others."""
    yield ahead(seen, "rope", "sinusoidal", "RoPE minus absolute")
    for rival in ("random", "alibi", "nope", "t5"):
        yield ahead(seen, "sinusoidal", rival, f"absolute minus {NAMES_AND_MLA[rival]}")
    yield Part(
        quantity="random minus absolute, training accuracy",
        prediction=Within(ALIKE),
        values=seen.minus("random", "sinusoidal", fitted),
    )
    yield Part(
        quantity="random minus absolute, training minus held-out accuracy",
        prediction=AtLeast(ALIKE),
        values=seen.minus("random", "sinusoidal", overfit),
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
