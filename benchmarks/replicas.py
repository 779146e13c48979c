"""Training many seeds as one batched model, against training them one after another.

Scale mini, task distance, float32. Both sides take a step for each seed; the fast side takes them together.
A ratio above 1 says that together is faster. On a GPU the paper's model is timed too: there 8 seeds together
shall cost at most 2.5 times one, a ratio of 3.2. Run as `python -m benchmarks.replicas`.
"""

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch
from benchmarks.harness import Case, run

from spectrope.core.device import choose_device
from spectrope.sweeps.runs import run_for
from spectrope.training.loop import Trainer
from spectrope.training.replicas import ReplicaTrainer
from spectrope.training.scales import experiment

SEEDS = 8


def trainers(scale: str, dropout: float, root: Path) -> list[Trainer]:
    """One for each seed, not yet begun."""
    one = experiment("distance", "rope", scale=scale)
    one = replace(one, model=replace(one.model, dropout=dropout), n_train=4 * one.training.batch_size)
    seeds = [replace(one, seed=seed) for seed in range(SEEDS)]
    return [Trainer(each, run_for(each, root), choose_device()) for each in seeds]


def synchronise() -> None:
    """Wait for the device, where there is one to wait for."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def case(scale: str, dropout: float, root: Path) -> Case:
    """One size and one rate of dropout; the gate compares the weights after a step without dropout."""
    apart = trainers(scale, dropout, root / "apart")
    together = ReplicaTrainer(trainers(scale, dropout, root / "together"))

    def step_apart() -> None:
        for trainer in apart:
            trainer.step(trainer.batch(0, 0))
        synchronise()

    def step_together() -> None:
        together.step([trainer.batch(0, 0) for trainer in together.trainers])
        synchronise()

    def gate() -> None:
        alone = trainers(scale, 0.0, root / "gate")
        group = ReplicaTrainer(trainers(scale, 0.0, root / "gate-together"))
        group.step([trainer.batch(0, 0) for trainer in group.trainers])
        for replica, trainer in enumerate(alone):
            trainer.step(trainer.batch(0, 0))
            for name, weights in group.replicas.member(replica).items():
                torch.testing.assert_close(
                    weights, trainer.state.model.state_dict()[name], rtol=1e-2, atol=1e-4
                )

    goal = ">= 3.2x" if torch.cuda.is_available() and scale == "paper" else ""
    return Case(f"{SEEDS} seeds, {scale}, dropout {dropout:g}", gate, step_together, step_apart, goal)


def cases(root: Path) -> Iterator[Case]:
    """Both rates of dropout, at every size that the machine is fit for."""
    for scale in ("mini", "paper") if torch.cuda.is_available() else ("mini",):
        for dropout in (0.1, 0.0):
            yield case(scale, dropout, root / f"{scale}-{dropout}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        run("replicas", cases(Path(folder)), threads=2, repeats=3)
