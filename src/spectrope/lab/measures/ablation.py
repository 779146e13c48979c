"""Drops of all heads, from an exact sweep under a protocol."""

from typing import ClassVar

import torch

from spectrope.core import Watch, unwatched
from spectrope.lab.ablation.methods import EXAMPLES, Exact, ablate
from spectrope.lab.ablation.protocols import PROTOCOLS
from spectrope.lab.measures.base import Measure
from spectrope.lab.training.config import Experiment
from spectrope.store import Run


class ProtocolAblation(Measure):
    """Drops of all heads under a protocol, which also determines the name of the table."""

    protocol: ClassVar[str]  # A name in `PROTOCOLS`.

    def take(self, run: Run, device: torch.device, watch: Watch = unwatched) -> None:
        ablate(run, device, Exact(protocol=PROTOCOLS[self.protocol]), watch)

    def examples(self, experiment: Experiment) -> int:
        takes_all = PROTOCOLS[self.protocol].data == "all"
        return min(EXAMPLES, experiment.n_test + (experiment.n_train if takes_all else 0))


class Ablation(ProtocolAblation, name="ablation"):
    """Drops of all heads on held-out examples, with the result of the deposit rule."""

    protocol = "controlled"
