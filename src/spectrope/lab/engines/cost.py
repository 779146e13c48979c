"""Estimate the cost of a plan from a few steps of each kind of run on this machine."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from spectrope.core import config_hash, seconds
from spectrope.lab.experiments import AnyExperiment, TrainingTime, laboratory_of, written
from spectrope.lab.job import Job

SIDE, REPEATS = 512, 8  # Of the product whose speed is measured.
SHARE = (
    0.5  # Of that speed that training reaches: 0.45 at `mini`, 0.52 at `mid`, 0.76 at `paper` on one core.
)


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
    """Expected cost of each job, from a few steps of each kind of run and one measurement of each kind. Runs
    that differ only in their seed are timed once, and are assumed to use all of their steps. A measurement is
    timed on a few examples of the first run that needs it; for other runs it is scaled by the time of a step.

    Args:
        jobs: The jobs.
        device: Device to compute on.
    """
    timed: dict[str, TrainingTime] = {}
    relative: dict[str, float] = {}  # Seconds of a measurement for each second of a step.
    costs = []
    for job in jobs:
        one, kind, laboratory = job.experiment, _kind(job.experiment), laboratory_of(job.experiment)
        if kind not in timed:
            timed[kind] = laboratory.time(one, device, job.precision)
        timing = timed[kind]
        for name in job.tables:
            if name not in relative:
                relative[name] = laboratory.time_measure(one, name, device, job.precision) / timing.step
        costs.append(JobCost(timing.training, sum(relative[name] for name in job.tables) * timing.step))
    return costs


def estimate(jobs: Sequence[Job], device: torch.device) -> list[JobCost]:
    """Rough cost of training of each job within a second: operations at the speed of one product here.

    Training reaches a share of that speed, `SHARE`. Measurements are not included.

    Args:
        jobs: What there is to do.
        device: Where.
    """
    factor = torch.ones(SIDE, SIDE, device=device)
    product = min(seconds(lambda: factor @ factor, device) for _ in range(REPEATS))
    speed = SHARE * 2 * SIDE**3 / product
    by_kind: dict[str, JobCost] = {}
    costs = []
    for job in jobs:
        kind = _kind(job.experiment)
        if kind not in by_kind:
            operations = laboratory_of(job.experiment).operations(job.experiment)
            by_kind[kind] = JobCost(operations / speed, 0.0)
        costs.append(by_kind[kind])
    return costs


def _kind(experiment: AnyExperiment) -> str:
    """What runs that differ in their seed alone share."""
    return config_hash(_seedless(written(experiment)))


def _seedless(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _seedless(inner) for key, inner in value.items() if key != "seed"}
    return [_seedless(inner) for inner in value] if isinstance(value, list) else value
