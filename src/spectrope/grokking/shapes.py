"""Train ResNet-18 to count the sides of polygons in images."""

from pathlib import Path

import polars as pl
import torch
import torch.nn.functional as F
from jaxtyping import Int
from torch import Tensor

from spectrope.core import torch_stream
from spectrope.grokking.config import ShapesExperiment
from spectrope.grokking.measures.base import on_sphere
from spectrope.grokking.measures.med import neighbour_distance
from spectrope.grokking.measures.uniformity import simplex_distance, uniformity
from spectrope.grokking.models.vision import ResNet18
from spectrope.grokking.record import Evaluation, plain
from spectrope.grokking.steps import StepTrainer, require_finite
from spectrope.grokking.tasks.shapes import CELLS
from spectrope.lab import TrainingState
from spectrope.store import Run

IMAGES = "images"  # The table of all images: their number, sides, whether they train, and the answer.
BATCH = 250  # Images of an evaluation that are drawn at a time.
COLUMNS = {
    "train_loss": "loss on the training images, nats",
    "train_accuracy": "accuracy on the training images, a fraction",
    "test_loss": "loss on all other images, nats",
    "test_accuracy": "accuracy on all other images, a fraction",
    "held_out_loss": "loss on the images that the distribution holds out, nats",
    "held_out_accuracy": "accuracy on the images that the distribution holds out, a fraction",
    "med": "MED: mean distance of first hidden activations of neighbouring polygons",
    "med_unit": "MED of activations scaled to norm 1",
    "uniformity": "uniformity of first hidden activations on the sphere, ln of a mean potential",
    "simplex_distance": "distance of first hidden activations to the regular simplex, in cosines",
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
        trains, held_out = self.task.split(experiment.seed), self.task.held_out()
        self.train, self.test = trains.nonzero().squeeze(1), (~trains).nonzero().squeeze(1)
        self.splits = {"train": self.train, "test": self.test, "held_out": held_out.nonzero().squeeze(1)}
        source = None if experiment.source is None else Path(experiment.source)
        model = ResNet18(experiment.task.n_classes, experiment.seed, source, experiment.width).to(device)
        rule = {"l2": torch.optim.Adam, "decoupled": torch.optim.AdamW}[self.config.decay]
        adam = rule(
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
        """Losses and accuracies in evaluation mode, measures of first hidden activations, norm of weights."""
        self.state.model.eval()
        metrics: dict[str, float | None] = {}
        for name, index in self.splits.items():
            loss, accuracy = self._score(index) if len(index) > 0 else (None, None)
            metrics |= {f"{name}_loss": loss, f"{name}_accuracy": accuracy}
        require_finite(metrics["train_loss"], self.state.step)
        squares = [p.double().square().sum() for p in self.state.model.parameters()]
        return metrics | self._of_activations() | {"weight_norm": torch.stack(squares).sum().sqrt().item()}

    def _score(self, index: Int[Tensor, " n"]) -> tuple[float, float]:
        """Mean loss and accuracy of some images."""
        loss, right = 0.0, 0
        for part in index.split(BATCH):
            logits, labels = self._logits(part), self._labels(part)
            loss += F.cross_entropy(logits, labels, reduction="sum").item()
            right += int((logits.argmax(1) == labels).sum())
        return loss / len(index), right / len(index)

    def _of_activations(self) -> dict[str, float | None]:
        """MED and uniformity of the polygons, each alone in a cell, averaged over the four cells."""
        rows = []
        for images in self.task.alone():
            first = plain(self.state.model.first_hidden(images.to(self.device)))
            rows.append(
                {
                    "med": neighbour_distance(first),
                    "med_unit": neighbour_distance(on_sphere(first)),
                    "uniformity": uniformity(first),
                    "simplex_distance": simplex_distance(first),
                }
            )
        return {name: sum(row[name] for row in rows) / CELLS for name in rows[0]}

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
