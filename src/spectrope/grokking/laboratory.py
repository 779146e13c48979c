"""The laboratories of grokking: residues, and images whose sides are to be counted.

Their experiments measure themselves while they train. A run holds the table `progress` (scores and measures
by step) and the weights; on residues also the table `pairs` (every pair and the answer to it) and the tensors
`moments` (embeddings and right answers at some steps), on images the table `images`.
"""

import time
from abc import abstractmethod
from typing import TYPE_CHECKING, TypeVar

import torch

from spectrope.core import Precision, UnsupportedError, median_seconds
from spectrope.grokking.config import GrokExperiment, ShapesExperiment
from spectrope.grokking.models.vision import FULL_WIDTH
from spectrope.lab import Laboratory, Probe, TrainingTime, run_for
from spectrope.store import Run, temporary_folder

if TYPE_CHECKING:
    from spectrope.grokking.steps import StepTrainer

RESNET_OPERATIONS = 3.6e9  # Of a forward pass of ResNet-18 over one image
FULL_SIDE = 224  # of as many pixels a side.

E = TypeVar("E", GrokExperiment, ShapesExperiment)


class StepLaboratory(Laboratory[E]):
    """What the laboratories of grokking share: training by steps, with evaluations in between."""

    def check(self, experiment: E, probe: Probe | None) -> None:
        if probe is not None:
            raise UnsupportedError("probes measure decoders; runs of grokking measure themselves.")
        experiment.task.build().split(experiment.seed)

    @abstractmethod
    def steps(self, experiment: E, run: Run, device: torch.device) -> "StepTrainer":
        """The training of an experiment, which says its precision itself."""

    def trainer(
        self, experiment: E, run: Run, device: torch.device, precision: Precision, probe: Probe | None
    ) -> "StepTrainer":
        return self.steps(experiment, run, device)

    def time(self, experiment: E, device: torch.device, precision: Precision) -> TrainingTime:
        """As for any laboratory; a step has its share of an evaluation."""
        with temporary_folder() as folder:
            begun = time.perf_counter()
            trainer = self.steps(experiment, run_for(experiment, folder), device)
            making = time.perf_counter() - begun
            begun = time.perf_counter()
            trainer.evaluate()
            evaluating = time.perf_counter() - begun
            step = median_seconds(trainer.step, device)
        step += evaluating / experiment.training.evaluate_every
        return TrainingTime(making + experiment.training.steps * step, step)


class GrokLaboratory(StepLaboratory[GrokExperiment], name=GrokExperiment.laboratory):
    """Trains small models on operations on residues."""

    Experiment = GrokExperiment

    def steps(self, experiment: GrokExperiment, run: Run, device: torch.device) -> "StepTrainer":
        from spectrope.grokking.trainer import GrokTrainer  # Here, so that experiments are read without it.

        return GrokTrainer(experiment, run, device)

    def operations(self, experiment: GrokExperiment) -> float:
        """Two for each weight and pair of operands; a training pair counts three times, for its gradient."""
        task, training = experiment.task, experiment.training
        weights = sum(p.numel() for p in experiment.model.build(task, experiment.seed).parameters())
        n_train = len(task.build().split(experiment.seed).train)
        return 2 * weights * training.steps * (3 * n_train + task.p**2 / training.evaluate_every)


class ShapesLaboratory(StepLaboratory[ShapesExperiment], name=ShapesExperiment.laboratory):
    """Trains ResNet-18 to count sides."""

    Experiment = ShapesExperiment

    def check(self, experiment: ShapesExperiment, probe: Probe | None) -> None:
        from spectrope.grokking.models.vision import require_library

        require_library()
        super().check(experiment, probe)

    def steps(self, experiment: ShapesExperiment, run: Run, device: torch.device) -> "StepTrainer":
        from spectrope.grokking.shapes import ShapesTrainer

        return ShapesTrainer(experiment, run, device)

    def operations(self, experiment: ShapesExperiment) -> float:
        """Those of ResNet-18, in proportion to the area of the images and the square of its width."""
        task, training = experiment.task, experiment.training
        scale = (task.resolution / FULL_SIDE) ** 2 * (experiment.width / FULL_WIDTH) ** 2
        evaluated = task.n_train * training.steps / training.evaluate_every
        return RESNET_OPERATIONS * scale * (3 * training.batch_size * training.steps + evaluated)
