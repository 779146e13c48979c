"""Training many seeds as one batched model, against training them one after another.

Task distance, in float32 and, where the processor multiplies it natively, in bfloat16. Both sides take a step
for each seed; the fast side takes them together. A ratio above 1 says that together is faster. On a GPU the
paper's model is timed too: there 8 seeds together shall cost at most 2.5 times one, a ratio of 3.2. Run as
`python -m benchmarks.replicas`.
"""

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch
from benchmarks.harness import Case, run

from spectrope.core.autocast import in_precision
from spectrope.core.device import Precision, choose_device, choose_dtype
from spectrope.lab.runs import run_for
from spectrope.lab.training.loop import Trainer
from spectrope.lab.training.replicas import ReplicaTrainer
from spectrope.lab.training.scales import experiment

SEEDS = 8
CLOSE = {torch.float32: 1e-4, torch.bfloat16: 0.02}  # Of logits, as a part of the largest.
PRECISIONS: tuple[Precision, ...] = ("float32", "bfloat16")


def trainers(scale: str, dropout: float, root: Path, precision: Precision) -> list[Trainer]:
    """One for each seed, not yet begun."""
    one = experiment("distance", "rope", scale=scale)
    model, training = replace(one.model, dropout=dropout), replace(one.training, precision=precision)
    one = replace(one, model=model, training=training, n_train=4 * one.training.batch_size)
    seeds = [replace(one, seed=seed) for seed in range(SEEDS)]
    return [Trainer(each, run_for(each, root), choose_device()) for each in seeds]


def synchronise() -> None:
    """Wait for the device, where there is one to wait for."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def require_same_weights(scale: str, root: Path) -> None:
    """Compare the weights after a step in float32; Adam magnifies coarser rounding where gradients vanish."""
    alone = trainers(scale, 0.0, root / "gate", "float32")
    group = ReplicaTrainer(trainers(scale, 0.0, root / "gate-together", "float32"))
    group.step([trainer.batch(0, 0) for trainer in group.trainers])
    for replica, trainer in enumerate(alone):
        trainer.step(trainer.batch(0, 0))
        for name, weights in group.replicas.member(replica).items():
            torch.testing.assert_close(weights, trainer.state.model.state_dict()[name], rtol=1e-2, atol=1e-4)


def require_same_logits(together: ReplicaTrainer) -> None:
    """Compare the logits of all replicas with those of their models in float32."""
    models = [trainer.state.model for trainer in together.trainers]
    device, dtype = together.first.device, together.state.dtype
    batches = [trainer.test_data[:32].to(device) for trainer in together.trainers]
    with torch.no_grad():
        exact = torch.stack([model(batch) for model, batch in zip(models, batches, strict=True)])
        with in_precision(device, dtype):
            found = together.replicas(batches)
    torch.testing.assert_close(found, exact, rtol=0, atol=CLOSE[dtype] * exact.abs().max().item())


def case(scale: str, dropout: float, precision: Precision, root: Path) -> Case:
    """One size, rate of dropout and precision."""
    apart = trainers(scale, dropout, root / "apart", precision)
    together = ReplicaTrainer(trainers(scale, dropout, root / "together", precision))

    def step_apart() -> None:
        for trainer in apart:
            trainer.step(trainer.batch(0, 0))
        synchronise()

    def step_together() -> None:
        together.step([trainer.batch(0, 0) for trainer in together.trainers])
        synchronise()

    def gate() -> None:
        require_same_weights(scale, root)
        require_same_logits(together)

    goal = ">= 3.2x" if torch.cuda.is_available() and scale == "paper" else ""
    label = f"{SEEDS} seeds, {scale}, dropout {dropout:g}, {precision}"
    return Case(label, gate, step_together, step_apart, goal)


def cases(root: Path) -> Iterator[Case]:
    """Both rates of dropout, at every size and in every precision that the machine is fit for."""
    coarsest = choose_dtype("auto", choose_device())
    precisions = PRECISIONS if coarsest is torch.bfloat16 else PRECISIONS[:1]
    for scale in ("mini", "paper") if torch.cuda.is_available() else ("mini",):
        for dropout in (0.1, 0.0):
            for precision in precisions:
                yield case(scale, dropout, precision, root / f"{scale}-{dropout}-{precision}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        run("replicas", cases(Path(folder)), threads=2, repeats=3)
