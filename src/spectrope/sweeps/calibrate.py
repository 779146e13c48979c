"""What a plan will cost, from a few steps of each kind of run on this machine."""

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import torch

from spectrope.core.config import config_hash, to_dict
from spectrope.sweeps.job import Job
from spectrope.sweeps.measures import MEASURES
from spectrope.sweeps.runs import run_for
from spectrope.training.config import Experiment
from spectrope.training.loop import Trainer

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
    """What a shortened run took: seconds to make its data, and per step of the optimiser."""

    making: float
    step: float


def calibrate(jobs: Sequence[Job], device: torch.device) -> list[Cost]:
    """Expected cost of each job, from a few steps of each kind of run and one measurement of each kind.

    Runs that differ in their seed alone are timed once. A measurement is timed on a few examples of the first
    run that needs it; for others it is taken to be as much slower as their steps are.
    """
    timed: dict[str, Timing] = {}
    relative: dict[str, float] = {}  # Seconds of a measurement for each second of a step.
    costs = []
    for job in jobs:
        kind = _kind(job.experiment)
        if kind not in timed:
            timed[kind] = time_training(job.experiment, device)
        timing = timed[kind]
        for name in job.tables:
            if name not in relative:
                relative[name] = time_measure(job.experiment, name, device) / timing.step
        measuring = sum(relative[name] for name in job.tables) * timing.step
        costs.append(Cost(_training(job.experiment, timing), measuring))
    return costs


def time_training(experiment: Experiment, device: torch.device) -> Timing:
    """Take a few steps of a shortened run, in a folder that is then removed."""
    with tempfile.TemporaryDirectory() as folder:
        short = shortened(experiment)
        begun = time.perf_counter()
        trainer = Trainer(short, run_for(short, Path(folder)), device)
        making = time.perf_counter() - begun
        spans = []
        for _ in range(STEPS + 1):  # The first one warms up.
            begun = time.perf_counter()
            trainer.step(trainer.train_data)
            _wait(device)
            spans.append(time.perf_counter() - begun)
    return Timing(making, median(spans[1:]))


def time_measure(experiment: Experiment, name: str, device: torch.device) -> float:
    """Seconds that a measurement of the whole run will take, from one of a shortened run."""
    with tempfile.TemporaryDirectory() as folder:
        short = shortened(experiment)
        run = run_for(short, Path(folder))
        Trainer(short, run, device).fit()
        run.finish({})
        begun = time.perf_counter()
        MEASURES[name].take(run, device)
        seconds = time.perf_counter() - begun
    return seconds * MEASURES[name].examples(experiment) / MEASURES[name].examples(short)


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
    return timing.making * examples + (steps + scoring) * timing.step


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _kind(experiment: Experiment) -> str:
    """What runs that differ in their seed alone share."""
    return config_hash(_seedless(to_dict(experiment)))


def _seedless(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _seedless(inner) for key, inner in value.items() if key != "seed"}
    return [_seedless(inner) for inner in value] if isinstance(value, list) else value
