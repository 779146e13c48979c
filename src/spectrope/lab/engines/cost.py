"""What a plan will cost, from a few steps of each kind of run on this machine."""

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from spectrope.core import Precision, config_hash
from spectrope.lab.experiments import AnyExperiment, TrainingTime, laboratory_of, written
from spectrope.lab.job import Job, train
from spectrope.lab.measures import MEASURES
from spectrope.lab.training.config import Experiment
from spectrope.lab.training.laboratory import shortened


@dataclass(frozen=True)
class JobCost:
    """Expected seconds of a job on one worker that has its share of the machine."""

    training: float
    measuring: float

    @property
    def total(self) -> float:
        """Both together."""
        return self.training + self.measuring


def calibrate(jobs: Sequence[Job], device: torch.device) -> list[JobCost]:
    """Expected cost of each job, from a few steps of each kind of run and one measurement of each kind.

    Runs that differ in their seed alone are timed once, and taken to use all of their steps. A measurement is
    timed on a few examples of the first run that needs it; for others it is taken to be as much slower as
    their steps are.

    Args:
        jobs: What there is to do.
        device: Where.
    """
    timed: dict[str, TrainingTime] = {}
    relative: dict[str, float] = {}  # Seconds of a measurement for each second of a step.
    costs = []
    for job in jobs:
        one, kind = job.experiment, _kind(job.experiment)
        if kind not in timed:
            timed[kind] = laboratory_of(one).time(one, device, job.precision)
        timing = timed[kind]
        for name in job.tables:
            if name not in relative:
                relative[name] = time_measure(one, name, device, job.precision) / timing.step
        costs.append(JobCost(timing.training, sum(relative[name] for name in job.tables) * timing.step))
    return costs


def time_measure(
    experiment: AnyExperiment, name: str, device: torch.device, precision: Precision = "auto"
) -> float:
    """Seconds that a measurement of the whole run will take, from one of a shortened run."""
    assert isinstance(experiment, Experiment)  # Jobs of other laboratories have no tables.
    measure = MEASURES[name]()
    with tempfile.TemporaryDirectory() as folder:
        short = shortened(experiment)
        run = train(short, Path(folder), device, precision=precision)
        begun = time.perf_counter()
        measure.take(run, device)
        seconds = time.perf_counter() - begun
    return seconds * measure.examples(experiment) / measure.examples(short)


def _kind(experiment: AnyExperiment) -> str:
    """What runs that differ in their seed alone share."""
    return config_hash(_seedless(written(experiment)))


def _seedless(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _seedless(inner) for key, inner in value.items() if key != "seed"}
    return [_seedless(inner) for inner in value] if isinstance(value, list) else value
