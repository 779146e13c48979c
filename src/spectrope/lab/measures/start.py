"""Tangent kernels before training."""

import torch

from spectrope.lab.events import Listener, silent
from spectrope.lab.measures.base import Measure
from spectrope.lab.training.early import kernels_at_start
from spectrope.store import Run


class Start(Measure, name="start"):
    """The tangent kernels of every head of the untrained model."""

    def take(self, run: Run, device: torch.device, listen: Listener = silent) -> None:
        kernels_at_start(run, device, listen)
