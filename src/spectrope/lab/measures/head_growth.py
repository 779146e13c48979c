"""How far training moves each head."""

import torch

from spectrope.core import Watch, unwatched
from spectrope.lab.measures.base import Measure
from spectrope.lab.training.early import head_growth
from spectrope.store import Run


class HeadGrowth(Measure, name="head_growth"):
    """The energy of the change of each head's factors over training."""

    def take(self, run: Run, device: torch.device, watch: Watch = unwatched) -> None:
        head_growth(run, device, watch)
