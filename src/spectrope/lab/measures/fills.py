"""Drops of all heads when each keeps only positions, or only content."""

from typing import ClassVar

import torch

from spectrope.core import Watch, unwatched
from spectrope.lab.ablation.methods import EXAMPLES, Exact, ablate
from spectrope.lab.ablation.protocols import Protocol
from spectrope.lab.measures.base import Measure
from spectrope.lab.training.config import Experiment
from spectrope.store import Run


class FillAblation(Measure):
    """Drops of all heads on held-out examples under a fill, with the result of the deposit rule."""

    fill: ClassVar[str]  # A name in `FILLS`.

    def take(self, run: Run, device: torch.device, watch: Watch = unwatched) -> None:
        ablate(run, device, Exact(protocol=Protocol(fill=self.fill)), watch)

    def examples(self, experiment: Experiment) -> int:
        return min(EXAMPLES, experiment.n_test)


class PositionOnlyAblation(FillAblation, name="ablation-position-only"):
    """Drops where a head attends by positions alone."""

    fill = "position-only"


class ContentOnlyAblation(FillAblation, name="ablation-content-only"):
    """Drops where a head attends by content alone."""

    fill = "content-only"
