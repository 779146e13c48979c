"""What a plan will cost, from a few steps of each kind of run on this machine."""

import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import torch

from spectrope.core.config import config_hash
from spectrope.core.device import Precision
from spectrope.core.timing import seconds
from spectrope.grokking.run import trainer_of
from spectrope.lab.experiments import AnyExperiment, StepExperiment, written
from spectrope.lab.job import Job, train
from spectrope.lab.measures import MEASURES
from spectrope.lab.runs import run_for
from spectrope.lab.training.config import Experiment
from spectrope.lab.training.loop import Trainer
from spectrope.lab.training.replicas import ReplicaTrainer

STEPS, EXAMPLES = 5, 256  # Of the calibration: optimiser steps, and held-out examples.
FORWARD = 1 / 3  # Share of a step that its forward pass takes.


@dataclass(frozen=True)
class Cost:
    """Expected seconds of a job on one worker that has its share of the machine."""

    training: float
    measuring: float

    @property
    def total(self) -> float:
        """Both together."""
        return self.training + self.measuring


@dataclass(frozen=True)
class Timing:
    """What a shortened run took: seconds to make its data, and per step of the optimiser.

    Args:
        making: Seconds to make its data.
        step: Seconds per step of the optimiser.
        share: What a step costs each run of a group that trains together, as a share of `step`.
    """

    making: float
    step: float
    share: float = 1.0


def calibrate(jobs: Sequence[Job], device: torch.device, replicas: int = 1) -> list[Cost]:
    """Expected cost of each job, from a few steps of each kind of run and one measurement of each kind.

    Runs that differ in their seed alone are timed once, and taken to use all of their steps. A measurement is
    timed on a few examples of the first run that needs it; for others it is taken to be as much slower as
    their steps are.

    Args:
        jobs: What there is to do.
        device: Where.
        replicas: Most seeds that train as one model.
    """
    kinds = Counter(_kind(job.experiment) for job in jobs)
    timed: dict[str, Timing] = {}
    relative: dict[str, float] = {}  # Seconds of a measurement for each second of a step.
    costs = []
    for job in jobs:
        one, kind = job.experiment, _kind(job.experiment)
        if not isinstance(one, Experiment):
            timed[kind] = timed.get(kind) or time_grokking(one, device)
            costs.append(Cost(timed[kind].making + one.training.steps * timed[kind].step, 0.0))
            continue
        group = min(replicas, kinds[kind])
        timing = timed[kind] = timed.get(kind) or time_training(one, device, group, job.precision)
        for name in job.tables:
            if name not in relative:
                relative[name] = time_measure(one, name, device, job.precision) / timing.step
        measuring = sum(relative[name] for name in job.tables) * timing.step
        costs.append(Cost(_training(one, timing), measuring))
    return costs


def time_training(
    experiment: Experiment, device: torch.device, group: int = 1, precision: Precision = "auto"
) -> Timing:
    """Take a few steps of a shortened run, and of a group of them, in a folder that is then removed."""
    with tempfile.TemporaryDirectory() as folder:
        short = shortened(experiment)
        begun = time.perf_counter()
        trainer = Trainer(short, run_for(short, Path(folder)), device, precision=precision)
        making = time.perf_counter() - begun
        step = _seconds(lambda: trainer.step(trainer.train_data), device)
        if group == 1:
            return Timing(making, step)
        seeds = [replace(short, seed=short.seed + more) for more in range(group)]
        trainers = [Trainer(one, run_for(one, Path(folder)), device, precision=precision) for one in seeds]
        together, batches = ReplicaTrainer(trainers), [trainer.train_data for trainer in trainers]
        return Timing(making, step, _seconds(lambda: together.step(batches), device) / group / step)


def time_grokking(experiment: StepExperiment, device: torch.device) -> Timing:
    """The same for the grokking laboratory; a step has its share of an evaluation."""
    with tempfile.TemporaryDirectory() as folder:
        begun = time.perf_counter()
        trainer = trainer_of(experiment, run_for(experiment, Path(folder)), device)
        making = time.perf_counter() - begun
        begun = time.perf_counter()
        trainer.evaluate()
        evaluating = time.perf_counter() - begun
        step = _seconds(trainer.step, device)
    return Timing(making, step + evaluating / experiment.training.evaluate_every)


def time_measure(
    experiment: Experiment, name: str, device: torch.device, precision: Precision = "auto"
) -> float:
    """Seconds that a measurement of the whole run will take, from one of a shortened run."""
    measure = MEASURES[name]()
    with tempfile.TemporaryDirectory() as folder:
        short = shortened(experiment)
        run = train(short, Path(folder), device, precision=precision)
        begun = time.perf_counter()
        measure.take(run, device)
        seconds = time.perf_counter() - begun
    return seconds * measure.examples(experiment) / measure.examples(short)


def shortened(experiment: Experiment) -> Experiment:
    """The same with one step, on few examples."""
    training = replace(experiment.training, epochs=1, eval_examples=1)
    n_train = min(experiment.n_train, training.batch_size)
    return replace(experiment, training=training, n_train=n_train, n_test=min(experiment.n_test, EXAMPLES))


def _training(whole: Experiment, timing: Timing) -> float:
    """Seconds to make the data, take all steps, and score both splits after each epoch."""
    config, short = whole.training, shortened(whole)
    examples = (whole.n_train + whole.n_test) / (short.n_train + short.n_test)
    steps = config.epochs * whole.n_train / config.batch_size
    scored = min(config.eval_examples, whole.n_train) + min(config.eval_examples, whole.n_test)
    scoring = (config.epochs + 1) * scored / config.batch_size * FORWARD
    return timing.making * examples + (steps * timing.share + scoring) * timing.step


def _seconds(step: Callable[[], None], device: torch.device) -> float:
    """Median time of a step, the first of which warms up."""
    return median([seconds(step, device) for _ in range(STEPS + 1)][1:])


def _kind(experiment: AnyExperiment) -> str:
    """What runs that differ in their seed alone share."""
    return config_hash(_seedless(written(experiment)))


def _seedless(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _seedless(inner) for key, inner in value.items() if key != "seed"}
    return [_seedless(inner) for inner in value] if isinstance(value, list) else value
