"""How far training moves each head."""

import torch

from spectrope.lab.events import Listener, silent
from spectrope.lab.measures.base import Measure
from spectrope.lab.training.early import head_growth
from spectrope.store import Run


class HeadGrowth(Measure, name="head_growth"):
    """The energy of the change of each head's factors over training."""

    def take(self, run: Run, device: torch.device, listen: Listener = silent) -> None:
        head_growth(run, device, listen)
