"""Gradients by head over the first steps of training."""

import torch

from spectrope.core import Watch, unwatched
from spectrope.lab.measures.base import Measure
from spectrope.lab.training.config import Experiment
from spectrope.lab.training.early import STEPS, head_gradients
from spectrope.store import Run


class HeadGradients(Measure, name="head_gradients"):
    """The energy of each head's gradient over the first steps, which are taken again."""

    def take(self, run: Run, device: torch.device, watch: Watch = unwatched) -> None:
        head_gradients(run, device, watch)

    def examples(self, experiment: Experiment) -> int:
        training = experiment.training
        steps = training.epochs * -(-experiment.n_train // training.batch_size)
        return min(STEPS + 1, steps) * training.batch_size
