"""Pilot runs, which determine the learning rate and epochs of a planned scale by the plan's rules, before its
first row."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from statistics import fmean
from typing import Any

from spectrope.core import ConfigError, commit
from spectrope.lab import Experiment, Job, experiment, trial
from spectrope.study.arms import TASKS
from spectrope.study.plan import is_chosen, is_named, pilot_file, plan, planned_scales
from spectrope.study.rows import StudyRows
from spectrope.study.schedule import spent_seconds


@dataclass(frozen=True)
class RateAndEpochs:
    """Peak learning rate and epochs of a pilot run."""

    rate: float
    epochs: int


@dataclass(frozen=True)
class Pilots:
    """The pilot runs of a planned scale.

    Rates are compared at the scale's own number of epochs, by the loss on a fifth of the training examples,
    averaged over encodings and seeds; then a multiple of that number, at the chosen rate, by the relative
    change of that mean.

    Args:
        scale: Name of the scale, and of its section of the plan.

    Raises:
        ConfigError: If the plan has no pilots for the scale.
    """

    scale: str

    def __post_init__(self) -> None:
        if self.scale not in piloted():
            raise ConfigError(f"scale {self.scale!r} has no pilots in the plan; {', '.join(piloted())} has.")

    @property
    def planned(self) -> Mapping[str, Any]:
        """What the plan says of them."""
        return plan()[self.scale]["pilots"]

    def file(self, folder: Path) -> Path:
        """Where their rows go, apart from those that count."""
        return folder / pilot_file(plan()[self.scale])

    @property
    def seeds(self) -> range:
        """None of them counts in an estimate."""
        first = self.planned["first_seed"]
        return range(first, first + self.planned["seeds"])

    def jobs(self, rows: StudyRows) -> list[Job]:
        """All runs that the rows so far ask for: those of each rate, then those of more epochs."""
        rated = [self._runs(task, setting) for task in TASKS for setting in self._rates(task)]
        longer = [
            self._runs(task, self._longer(short))
            for task in TASKS
            if (short := self.best_rate(task, rows)) is not None
        ]
        runs = (one for group in (*rated, *longer) for one in group)
        return [Job(one, (), self.planned["precision"]) for one in runs]

    def losses(self, task: str, setting: RateAndEpochs, rows: StudyRows) -> list[float]:
        """Validation loss of each run in nats, infinite if training diverged; empty until all are there."""
        found = [rows.get(one) for one in self._runs(task, setting)]
        facts = [row.facts["test_loss"] for row in found if row is not None]
        return [inf if loss is None else loss for loss in facts] if len(facts) == len(found) else []

    def best_rate(self, task: str, rows: StudyRows) -> RateAndEpochs | None:
        """The rate of lowest mean loss, the smaller of equals; None until all its runs are there."""
        losses = {setting: self.losses(task, setting, rows) for setting in self._rates(task)}
        if not all(losses.values()):
            return None
        return min(losses, key=lambda setting: (fmean(losses[setting]), setting.rate))

    def choice(self, task: str, rows: StudyRows) -> RateAndEpochs | None:
        """Rate and epochs by both rules; None until all runs are there."""
        short = self.best_rate(task, rows)
        if short is None:
            return None
        long = self._longer(short)
        before, after = (self.losses(task, setting, rows) for setting in (short, long))
        if not after:
            return None
        return long if fmean(after) <= (1 - self.planned["least_gain"]) * fmean(before) else short

    def seconds_left(self, pilots: StudyRows, rows: StudyRows) -> float:
        """Seconds on one core that the plan leaves for training at the scale.

        Args:
            pilots: Rows of the pilot runs.
            rows: Rows that count.
        """
        spent = spent_seconds(rows, pilots, self.scale)
        return 3600 * plan()[self.scale]["core_hours"] - spent.get(self.scale, 0.0)

    def at_the_edge(self, chosen: RateAndEpochs) -> str:
        """End of the grid at which the chosen rate lies ("lowest" or "highest"), if any; the choice is
        kept."""
        rates = self.planned["rates"]
        return "lowest" if chosen.rate == min(rates) else "highest" if chosen.rate == max(rates) else ""

    def settings(self, task: str, rows: StudyRows) -> list[RateAndEpochs]:
        """Every setting that there is to compare."""
        short = self.best_rate(task, rows)
        return [*self._rates(task), *([] if short is None else [self._longer(short)])]

    def _longer(self, short: RateAndEpochs) -> RateAndEpochs:
        return replace(short, epochs=short.epochs * self.planned["longer"])

    def _rates(self, task: str) -> list[RateAndEpochs]:
        epochs = self.planned["epochs"][task]
        return [RateAndEpochs(rate, epochs) for rate in self.planned["rates"]]

    def _runs(self, task: str, setting: RateAndEpochs) -> list[Experiment]:
        names = self.planned["encodings"]
        return [self._run(task, name, setting, seed) for name in names for seed in self.seeds]

    def _run(self, task: str, encoding: str, setting: RateAndEpochs, seed: int) -> Experiment:
        one = experiment(
            task,
            encoding,
            scale=self.scale,
            condition=self.planned["condition"],
            seed=seed,
            epochs=setting.epochs,
        )
        return trial(one, setting.rate)


def piloted() -> list[str]:
    """The scales whose rates the plan leaves to pilots."""
    return [name for name, section in plan().items() if "pilots" in section]


def require_frozen(scale: str) -> None:
    """Raise an error if runs could not count at a planned scale.

    Raises:
        ConfigError: If the plan leaves rate and epochs to pilots but does not contain their choice, or if the
            package differs from its last commit or has no commit.
    """
    if scale in piloted() and not is_chosen(plan()[scale]):
        raise ConfigError(
            f"scale {scale!r} waits for its rates and epochs; `spectrope claims pilots` chooses them, and "
            f"[{scale}.chosen] in the plan fixes them before the first row."
        )
    if scale in planned_scales() and not is_named(commit()):
        raise ConfigError(
            f"a row at scale {scale!r} counts only if its code is committed, and this is {commit()}; commit "
            "the changes in the package, or use a checkout of a commit."
        )
