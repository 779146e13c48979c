"""Change of each head's factors over training."""

import polars as pl
import torch

from spectrope.core import Progress, Watch
from spectrope.lab.measures.base import TableMeasure
from spectrope.lab.probes.head_factors import by_head, factor_growth
from spectrope.lab.runs import build_model, experiment_of, load_model
from spectrope.store import Run


class HeadGrowth(TableMeasure, name="head_growth"):
    """The energy of the change of each head's factors over training: a row per layer and head."""

    def table(self, run: Run, device: torch.device, watch: Watch) -> pl.DataFrame:
        """The table.

        Raises:
            UnsupportedError: If attention is not multi-head.
        """
        before = build_model(experiment_of(run), device)
        table = by_head(energy=factor_growth(before, load_model(run, device)))
        watch(Progress("learning", 1, 1))
        return table
