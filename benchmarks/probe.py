"""What the probe of learning costs: one measurement against the hundred steps of training between two.

Scale mini, task distance; a ratio of 20 is a cost of 5 %. Run as `python -m benchmarks.probe`.
"""

import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import torch
from benchmarks.harness import Case, run

from spectrope.core.device import choose_device
from spectrope.lab.runs import run_for
from spectrope.lab.training.learning import LearningProbe
from spectrope.lab.training.loop import Trainer
from spectrope.lab.training.probe import Recorder
from spectrope.lab.training.scales import experiment

STEPS = 100
ENCODINGS = ("rope", "alibi")


def trainer(encoding: str, root: Path) -> Trainer:
    """A fresh one at scale mini."""
    one = experiment("distance", encoding)
    return Trainer(one, run_for(one, root), choose_device())


def steps(training: Trainer, number: int) -> None:
    """Some steps of the optimiser, without the scores after an epoch."""
    for within in range(number):
        training.step(training.batch(0, within % training.steps_per_epoch))


def weights_after(root: Path, encoding: str, every: int | None) -> list[torch.Tensor]:
    """Weights after three steps, measured before each or not at all."""
    training = trainer(encoding, root)
    recorder = every and Recorder(LearningProbe(every=every), training.run, training.train_data, 0)
    for _ in range(3):
        if recorder:
            recorder.record(training.state.model, training.state.step)
        steps(training, 1)
    return list(training.state.model.parameters())


def case(encoding: str, root: Path) -> Case:
    """One encoding; the gate asks that weights are the same, bit for bit."""
    training = trainer(encoding, root / encoding)
    recorder = Recorder(LearningProbe(every=1), training.run, training.train_data, 0)
    moment = count()

    def gate() -> None:
        both = (weights_after(root / str(every) / encoding, encoding, every) for every in (1, None))
        for measured, plain in zip(*both, strict=True):
            assert torch.equal(measured, plain), "the probe changes the weights"

    return Case(
        f"a measurement in {STEPS} steps, {encoding}",
        gate=gate,
        fast=lambda: recorder.record(training.state.model, next(moment)),
        reference=lambda: steps(training, STEPS),
        goal=">= 20x",
    )


def cases(root: Path) -> Iterator[Case]:
    """Every encoding."""
    for encoding in ENCODINGS:
        yield case(encoding, root)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        run("probe", cases(Path(folder)), repeats=3)
