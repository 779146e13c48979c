"""Base classes of measures, which compute a table from a finished run."""

from abc import ABC, abstractmethod
from typing import ClassVar

import polars as pl
import torch

from spectrope.core import Registered, Registry, Watch, require_type, unwatched
from spectrope.lab.stamps import is_made_by, with_digests
from spectrope.lab.training.config import Experiment
from spectrope.store import Run

MEASURES: Registry[type["Measure"]] = Registry("measure", "spectrope.lab.measures", "TableMeasure")
TABLES_OF_OTHERS = (
    *("checkpoint", "checkpoint-2"),
    *("metrics", "tuning", "extrapolation", "learning", "gradients", "participation", "atlas-heads"),
    *("learning-settings", "head_gradients-settings", "head-groups"),
    *("deposit", "adaptive", "cumulative", "screen", "correlation", "bands", "shares", "kernel", "lags"),
    *("distances", "symbol", "extremes", "eigenvalues", "szego", "terms", "term_kernel"),
)  # Which training, ablation and spectra keep with a run, or remove from it.
for _name in TABLES_OF_OTHERS:
    MEASURES.reserve(_name, "a table that SpectroPE itself keeps with a run")


class Measure(Registered, ABC):
    """A measure of a finished run, stored with it as a table of the measure's name.

    A subclass registers its name (`class Lengths(Measure, name="lengths")`), under which jobs and commands
    know it.
    """

    registry = MEASURES
    kind: ClassVar[str]

    @abstractmethod
    def take(self, run: Run, device: torch.device, watch: Watch = unwatched) -> None:
        """Measure a run on a device, and store the table with it."""

    def examples(self, experiment: Experiment) -> int:
        """Number of examples that it uses of an experiment's data, to which its cost is proportional."""
        return 1

    def is_taken(self, run: Run) -> bool:
        """Whether a run has the table; of a user-defined measure, made by the current file."""
        return is_made_by(run, self.kind, type(self))


class TableMeasure(Measure):
    """A measure that computes one table; base class of user-defined measures."""

    @abstractmethod
    def table(self, run: Run, device: torch.device, watch: Watch) -> pl.DataFrame:
        """The table.

        Args:
            run: A finished run.
            device: Device to compute on.
            watch: Progress callback.
        """

    def take(self, run: Run, device: torch.device, watch: Watch = unwatched) -> None:
        with run.lock():
            table = self.table(run, device, watch)
            require_type(table, pl.DataFrame, f"{type(self).__name__}.table", "a polars data frame")
            run.write_frame(self.kind, with_digests(table, type(self)))
