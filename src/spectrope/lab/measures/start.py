"""Tangent kernels before training."""

import torch

from spectrope.core import Watch, unwatched
from spectrope.lab.measures.base import Measure
from spectrope.lab.training.early import kernels_at_start
from spectrope.store import Run


class Start(Measure, name="start"):
    """The tangent kernels of every head of the untrained model."""

    def take(self, run: Run, device: torch.device, watch: Watch = unwatched) -> None:
        kernels_at_start(run, device, watch)
