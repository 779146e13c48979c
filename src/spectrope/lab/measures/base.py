"""What a measure is: something computed from a finished run and kept with it as a table."""

from abc import ABC, abstractmethod
from typing import ClassVar

import polars as pl
import torch

from spectrope.core import Registered, Registry, Watch, unwatched
from spectrope.lab.stamps import is_made_by, with_digests
from spectrope.lab.training.config import Experiment
from spectrope.store import Run

MEASURES: Registry[type["Measure"]] = Registry("measure", "spectrope.lab.measures", "TableMeasure")


class Measure(Registered, ABC):
    """Something that is measured on a finished run and leaves a table called like the measure.

    A subclass names itself (`class Lengths(Measure, name="lengths")`); jobs, commands and costs follow.
    """

    registry = MEASURES
    kind: ClassVar[str]

    @abstractmethod
    def take(self, run: Run, device: torch.device, watch: Watch = unwatched) -> None:
        """Measure a run on a device, and keep the table with it."""

    def examples(self, experiment: Experiment) -> int:
        """How many examples it takes of an experiment's data, in proportion to which its cost grows."""
        return 1

    def is_taken(self, run: Run) -> bool:
        """Whether a run has the table, made by the present file where that is the user's own."""
        return is_made_by(run, self.kind, type(self))


class TableMeasure(Measure):
    """A measure that computes one table: what a measure of the user's own derives from."""

    @abstractmethod
    def table(self, run: Run, device: torch.device, watch: Watch) -> pl.DataFrame:
        """The table.

        Args:
            run: A finished run.
            device: Device to compute on.
            watch: Progress callback.
        """

    def take(self, run: Run, device: torch.device, watch: Watch = unwatched) -> None:
        run.write_frame(self.kind, with_digests(self.table(run, device, watch), type(self)))
