"""Grid search over learning rates, judged on validation examples."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import polars as pl

from spectrope.lab.training.config import Experiment

FACTORS = (0.3, 1.0, 3.0, 10.0, 30.0)  # Multiples of the learning rate of the scale.
SHARE = 0.2  # Share of the training examples that is left out for validation.


@dataclass(frozen=True)
class Trial:
    """One learning rate of a grid.

    Args:
        rate: Peak learning rate.
        accuracy: Accuracy on the validation examples, as a fraction.
        loss: Loss on the validation examples, in nats; NaN if training diverged.
        seconds: Training time.
        run: Id of the run.
    """

    rate: float
    accuracy: float
    loss: float
    seconds: float
    run: str

    @classmethod
    def of(cls, experiment: Experiment, facts: Mapping[str, Any], run: str) -> "Trial":
        """The result of a trial, from its manifest or its row, where a loss that is not finite is null."""
        loss = math.nan if facts["test_loss"] is None else facts["test_loss"]
        rate = experiment.training.learning_rate
        return cls(rate, facts["test_accuracy"], loss, facts["seconds"], run)

    @property
    def merit(self) -> tuple[float, float]:
        """Sort key of trials: accuracy, then loss."""
        return self.accuracy, -self.loss if math.isfinite(self.loss) else -math.inf


@dataclass(frozen=True)
class Tuning:
    """The grid of one encoding on one task.

    Args:
        of: The experiment whose learning rate is chosen, for all of its seeds.
        trials: One per learning rate, ascending.
    """

    of: Experiment
    trials: tuple[Trial, ...]

    @property
    def task(self) -> str:
        """Name of the task."""
        return self.of.task.kind

    @property
    def encoding(self) -> str:
        """Name of the encoding."""
        return self.of.encoding_name

    @property
    def chosen(self) -> Trial:
        """The trial with the highest accuracy; ties are broken by the lowest loss."""
        return max(self.trials, key=lambda trial: trial.merit)

    @property
    def at_edge(self) -> bool:
        """Whether the chosen rate is an end of the grid, beyond which a better one may lie."""
        return self.chosen in (self.trials[0], self.trials[-1])

    @property
    def seconds(self) -> float:
        """Total training time of the grid, in seconds."""
        return sum(trial.seconds for trial in self.trials)

    def table(self) -> pl.DataFrame:
        """A row per trial, with the column "chosen"."""
        return pl.DataFrame([asdict(trial) | {"chosen": trial == self.chosen} for trial in self.trials])


def grid(experiment: Experiment, factors: Sequence[float] = FACTORS) -> list[Experiment]:
    """The trials of an experiment's grid, by ascending rate (see `trial`).

    Args:
        experiment: The experiment whose learning rate is to be chosen.
        factors: Learning rates, as multiples of its own.
    """
    rates = sorted({factor * experiment.training.learning_rate for factor in factors})
    return [trial(experiment, rate) for rate in rates]


def trial(experiment: Experiment, rate: float) -> Experiment:
    """An experiment at another learning rate, trained on the first 80 % of its training examples.

    The other 20 % serve for validation: the trial's "held-out" examples are training examples of the
    experiment, so that the experiment's own held-out examples are not used.

    Args:
        experiment: The experiment whose learning rate is to be chosen.
        rate: Peak learning rate.
    """
    left_out = max(1, round(SHARE * experiment.n_train))
    rest = max(1, experiment.n_train - left_out)
    training = replace(experiment.training, learning_rate=rate)
    return replace(experiment, n_train=rest, n_test=left_out, tuning="trial", training=training)


def trials_of(plan: Sequence[Experiment], factors: Sequence[float] = FACTORS) -> list[Experiment]:
    """All trials that `tune` runs for a plan."""
    return [trial for one in first_seeds(plan) for trial in grid(one, factors)]


def first_seeds(plan: Sequence[Experiment]) -> list[Experiment]:
    """The first of all experiments that differ in nothing but the seed."""
    firsts: list[Experiment] = []
    for one in plan:
        if not any(differ_by_seed(one, first) for first in firsts):
            firsts.append(one)
    return firsts


def differ_by_seed(one: Experiment, other: Experiment) -> bool:
    """Whether two experiments are the same, except for their seeds, which some encodings have as well."""
    return one.with_(seed=other.seed) == other


def tuned(experiment: Experiment, tunings: Sequence[Tuning]) -> Experiment:
    """An experiment at the learning rate that was chosen for it and its other seeds."""
    tuning = next(one for one in tunings if differ_by_seed(one.of, experiment))
    training = replace(experiment.training, learning_rate=tuning.chosen.rate)
    return replace(experiment, training=training, tuning="chosen")
