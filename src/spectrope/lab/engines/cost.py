"""Estimate the cost of a plan from a few steps of each kind of run on this machine."""

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


class Calibration:
    """Expected cost of a job, from a few steps of its kind of run and one measurement of each kind.

    Each kind is timed when a job first needs it. Runs that differ only in their seed are timed once, and are
    assumed to use all of their steps. A measurement is timed on a few examples of the first run that needs
    it; for other runs it is scaled by the time of a step.

    Args:
        device: Device to compute on.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._timed: dict[str, TrainingTime] = {}
        self._relative: dict[str, float] = {}  # Seconds of a measurement for each second of a step.

    def __call__(self, job: Job) -> JobCost:
        one, kind, laboratory = job.experiment, _kind(job.experiment), laboratory_of(job.experiment)
        if kind not in self._timed:
            self._timed[kind] = laboratory.time(one, self.device, job.precision)
        timing = self._timed[kind]
        for name in job.tables:
            if name not in self._relative:
                seconds_of_one = laboratory.time_measure(one, name, self.device, job.precision)
                self._relative[name] = seconds_of_one / timing.step
        return JobCost(timing.training, sum(self._relative[name] for name in job.tables) * timing.step)


class Estimation:
    """Rough cost of training of a job within a second: operations at the speed of one product here.

    Training reaches a share of that speed, `SHARE`. Measurements are not included.

    Args:
        device: Device to compute on.
    """

    def __init__(self, device: torch.device) -> None:
        factor = torch.ones(SIDE, SIDE, device=device)
        product = min(seconds(lambda: factor @ factor, device) for _ in range(REPEATS))
        self._speed = SHARE * 2 * SIDE**3 / product
        self._by_kind: dict[str, JobCost] = {}

    def __call__(self, job: Job) -> JobCost:
        kind = _kind(job.experiment)
        if kind not in self._by_kind:
            operations = laboratory_of(job.experiment).operations(job.experiment)
            self._by_kind[kind] = JobCost(operations / self._speed, 0.0)
        return self._by_kind[kind]


def _kind(experiment: AnyExperiment) -> str:
    """What runs that differ in their seed alone share."""
    return config_hash(_seedless(written(experiment)))


def _seedless(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _seedless(inner) for key, inner in value.items() if key != "seed"}
    return [_seedless(inner) for inner in value] if isinstance(value, list) else value
