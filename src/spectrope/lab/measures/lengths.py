"""Accuracy on longer sequences than those of training."""

import torch

from spectrope.core import Watch, unwatched
from spectrope.lab.evaluation.lengths import lengths
from spectrope.lab.measures.base import Measure
from spectrope.store import Run


class Lengths(Measure, name="lengths"):
    """Accuracy and loss on longer and longer sequences."""

    def take(self, run: Run, device: torch.device, watch: Watch = unwatched) -> None:
        lengths(run, device, watch=watch)
