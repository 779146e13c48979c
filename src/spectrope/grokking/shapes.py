"""ResNet-18 on images whose sides are to be counted."""

from pathlib import Path

import polars as pl
import torch
import torch.nn.functional as F
from jaxtyping import Int
from torch import Tensor

from spectrope.core import torch_stream
from spectrope.grokking.config import ShapesExperiment
from spectrope.grokking.models.vision import ResNet18
from spectrope.grokking.record import Evaluation
from spectrope.grokking.steps import StepTrainer, require_finite
from spectrope.lab import TrainingState
from spectrope.store import Run

IMAGES = "images"  # The table of all images: their number, sides, whether they train, and the answer.
BATCH = 250  # Images of an evaluation that are drawn at a time.
COLUMNS = {
    "train_loss": "loss on the training images, nats",
    "train_accuracy": "accuracy on the training images, a fraction",
    "test_loss": "loss on all other images, nats",
    "test_accuracy": "accuracy on all other images, a fraction",
    "weight_norm": "norm of all weights",
}


class ShapesTrainer(StepTrainer):
    """Trains ResNet-18 in mini-batches, each epoch in an order of its own; images are drawn when needed.

    Args:
        experiment: What to train, on what, and how.
        run: Where checkpoints, evaluations and weights go.
        device: Device to compute on.
    """

    columns = COLUMNS

    def __init__(self, experiment: ShapesExperiment, run: Run, device: torch.device) -> None:
        self.experiment, self.config, self.device = experiment, experiment.training, device
        self.task = experiment.task.build()
        trains = self.task.split(experiment.seed)
        self.train, self.test = trains.nonzero().squeeze(1), (~trains).nonzero().squeeze(1)
        source = None if experiment.source is None else Path(experiment.source)
        model = ResNet18(experiment.task.n_classes, experiment.seed, source).to(device)
        adam = torch.optim.Adam(
            model.parameters(), self.config.learning_rate, weight_decay=self.config.weight_decay, fused=True
        )
        super().__init__(self.config, run, TrainingState(model, adam, row=Evaluation))

    def step(self) -> None:
        """One step of the optimiser on the next mini-batch."""
        state, index = self.state, self._batch()
        state.model.train()
        state.optimiser.zero_grad(set_to_none=True)
        F.cross_entropy(self._logits(index), self._labels(index)).backward()
        state.optimiser.step()
        state.step += 1

    @torch.no_grad()
    def look(self) -> dict[str, float | None]:
        """Loss and accuracy of both splits in evaluation mode, and the norm of all weights."""
        self.state.model.eval()
        metrics: dict[str, float | None] = {}
        for name, index in (("train", self.train), ("test", self.test)):
            loss, right = 0.0, 0
            for part in index.split(BATCH):
                logits, labels = self._logits(part), self._labels(part)
                loss += F.cross_entropy(logits, labels, reduction="sum").item()
                right += int((logits.argmax(1) == labels).sum())
            metrics |= {f"{name}_loss": loss / len(index), f"{name}_accuracy": right / len(index)}
        require_finite(metrics["train_loss"], self.state.step)
        squares = [p.double().square().sum() for p in self.state.model.parameters()]
        return metrics | {"weight_norm": torch.stack(squares).sum().sqrt().item()}

    def write(self) -> None:
        """Write evaluations and weights, and what is answered to every image."""
        super().write()
        self.run.write_frame(IMAGES, self._answers())

    @torch.no_grad()
    def _answers(self) -> pl.DataFrame:
        self.state.model.eval()
        every = torch.arange(len(self.task))
        answers = torch.cat([self._logits(part).argmax(1).cpu() for part in every.split(BATCH)])
        columns = {"image": every, "sides": self.task.labels, "answer": answers}
        columns |= {"trains": torch.isin(every, self.train)}
        return pl.DataFrame({name: values.numpy() for name, values in columns.items()})

    def _batch(self) -> Int[Tensor, " n"]:
        size = self.config.batch_size
        epoch, within = divmod(self.state.step, -(-len(self.train) // size))
        order = torch.randperm(len(self.train), generator=torch_stream(self.experiment.seed, "order", epoch))
        return self.train[order[within * size : (within + 1) * size]]

    def _logits(self, index: Int[Tensor, " n"]) -> Tensor:
        return self.state.model(self.task.draw(index.to(self.device)))

    def _labels(self, index: Int[Tensor, " n"]) -> Tensor:
        return self.task.labels[index].to(self.device)
