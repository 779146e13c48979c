"""Tangent kernels before training."""

import polars as pl
import torch

from spectrope.core import Progress, Watch
from spectrope.lab.measures.base import TableMeasure
from spectrope.lab.runs import build_model, experiment_of
from spectrope.lab.training.learning import LearningProbe
from spectrope.store import Run

KERNELS = (
    "positional_share",
    "positional_null",
    "tangent_largest",
    "tangent_plain_largest",
    "newton_largest",
    "newton_plain_largest",
)


class Start(TableMeasure, name="start"):
    """The tangent kernels of every head of the untrained model.

    A row per layer and head, with the columns `KERNELS` of the table "learning" of `LearningProbe`.
    """

    def table(self, run: Run, device: torch.device, watch: Watch) -> pl.DataFrame:
        """The table.

        Raises:
            UnsupportedError: If attention is not multi-head.
        """
        experiment, probe = experiment_of(run), LearningProbe()
        train, _ = experiment.task.build().split(experiment.n_train, experiment.n_test, experiment.seed)
        model = build_model(experiment, device).eval()
        measured = probe.measure(model, probe.choose(train).to(device))[probe.table]
        watch(Progress("learning", 1, 1))
        return measured.select("layer", "head", *KERNELS)
