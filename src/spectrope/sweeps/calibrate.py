"""What a plan will cost, from a few steps of each kind of job on this machine."""

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import torch

from spectrope.core.config import config_hash
from spectrope.sweeps.job import Job
from spectrope.sweeps.measures import MEASURES
from spectrope.sweeps.runs import run_for
from spectrope.training.config import Experiment
from spectrope.training.loop import Trainer

STEPS, EXAMPLES = 5, 256  # Of the calibration: optimiser steps, and held-out examples.


@dataclass(frozen=True)
class Cost:
    """Expected seconds of a job on one worker that has the machine to itself."""

    training: float
    measuring: float

    @property
    def total(self) -> float:
        """Both together."""
        return self.training + self.measuring


def calibrate(jobs: Sequence[Job], device: torch.device) -> list[Cost]:
    """Expected cost of each job; jobs that differ in nothing but the seed are timed once.

    A job is timed on a few steps and examples; its cost grows in proportion to steps and to examples.
    """
    known: dict[str, Cost] = {}
    for job in jobs:
        kind = _kind(job)
        if kind not in known:
            known[kind] = time_job(job, device)
    return [known[_kind(job)] for job in jobs]


def time_job(job: Job, device: torch.device) -> Cost:
    """Train and measure a shortened job in a folder that is then removed, and scale up what it took."""
    with tempfile.TemporaryDirectory() as folder:
        short = shortened(job.experiment)
        run = run_for(short, Path(folder))
        begun = time.perf_counter()
        trainer = Trainer(short, run, device)
        making = time.perf_counter() - begun
        moments: list[float] = []
        trainer.fit(lambda progress: moments.append(time.perf_counter()))
        run.finish({})
        measuring = 0.0
        for name in job.tables:
            begun = time.perf_counter()
            MEASURES[name].take(run, device)
            seconds = time.perf_counter() - begun
            examples = MEASURES[name].examples
            measuring += seconds * examples(job.experiment) / examples(short)
    return Cost(_training(job.experiment, short, making, moments), measuring)


def shortened(experiment: Experiment) -> Experiment:
    """The same with a few steps on a few examples."""
    training = replace(experiment.training, epochs=1, eval_examples=EXAMPLES)
    n_train = min(experiment.n_train, STEPS * training.batch_size)
    n_test = min(experiment.n_test, EXAMPLES)
    return replace(experiment, training=training, n_train=n_train, n_test=n_test)


def _training(whole: Experiment, short: Experiment, making: float, moments: Sequence[float]) -> float:
    """Seconds of the whole training, from the moments before each step of the short one and at its end."""
    spans = [later - earlier for earlier, later in pairwise(moments)]
    step = median(spans[:-1] or spans)  # The last one scores the epoch as well.
    scored = max(0.0, spans[-1] - step) / _scored(short)
    steps = whole.training.epochs * -(-whole.n_train // whole.training.batch_size)
    examples = (whole.n_train + whole.n_test) / (short.n_train + short.n_test)
    return making * examples + steps * step + (whole.training.epochs + 1) * scored * _scored(whole)


def _scored(experiment: Experiment) -> int:
    """Examples scored after an epoch."""
    n = experiment.training.eval_examples
    return min(n, experiment.n_train) + min(n, experiment.n_test)


def _kind(job: Job) -> str:
    """What jobs that differ in their seed alone share."""
    return config_hash(_seedless(job.to_dict()))


def _seedless(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _seedless(inner) for key, inner in value.items() if key != "seed"}
    return [_seedless(inner) for inner in value] if isinstance(value, list) else value
