"""Cost of every frequency band of every head, and where heads attend."""

import torch

from spectrope.core import Watch, unwatched
from spectrope.lab.ablation.methods import EXAMPLES
from spectrope.lab.atlas.run import atlas_run
from spectrope.lab.measures.base import Measure
from spectrope.lab.training.config import Experiment
from spectrope.store import Run


class BandAtlas(Measure, name="atlas"):
    """All cells of an exact atlas in 4 bands, and the table `atlas-heads` of where each head attends."""

    def take(self, run: Run, device: torch.device, watch: Watch = unwatched) -> None:
        atlas_run(run, device, watch=watch)

    def examples(self, experiment: Experiment) -> int:
        return min(EXAMPLES, experiment.n_test)
