"""Measurements during training, stored as tables with the run."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import ClassVar

import polars as pl

from spectrope.core import UnsupportedError, require_least
from spectrope.models import Decoder
from spectrope.store import Run
from spectrope.tasks import Batch

SETTINGS, TABLES = "-settings", "tables"  # End of the name of a table of settings; its column of names.


@dataclass(frozen=True, kw_only=True)
class Probe(ABC):
    """Measures a model during training without changing weights, gradients or random streams."""

    table: ClassVar[str]  # The name of one of its tables.
    further: ClassVar[tuple[str, ...]] = ()  # Those of the others.

    every: int = 100  # Steps from one measurement to the next.

    def __post_init__(self) -> None:
        require_least(self, 1, "every")

    @property
    def settings(self) -> pl.DataFrame:
        """The interval and the other settings, and the names of the tables, as a table of one row."""
        return pl.DataFrame([asdict(self) | {TABLES: [self.table, *self.further]}])

    @property
    def settings_table(self) -> str:
        """The name under which the settings are stored with a run."""
        return f"{self.table}{SETTINGS}"

    def require_same(self, run: Run) -> None:
        """Refuse a run on which this probe measured with other settings.

        Runs of earlier versions do not tell the settings, and are accepted.

        Raises:
            UnsupportedError: If the settings differ.
        """
        if not run.has_frame(self.settings_table):
            return
        used = run.frame(self.settings_table)
        if not used.equals(self.settings):
            raise UnsupportedError(
                f"run {run.id} was measured during training with {_listed(used)}, and not with "
                f"{_listed(self.settings)}; use the former, move its folder away, or take another folder "
                "of runs."
            )

    @abstractmethod
    def choose(self, data: Batch) -> Batch:
        """The training examples to measure on, the same ones at every step."""

    @abstractmethod
    def measure(self, model: Decoder, batch: Batch) -> Mapping[str, pl.DataFrame]:
        """Tables by name, always the same names, without the step."""


class Recorder:
    """Records the measurements of a probe at its interval, and stores them with the run.

    Every table is rewritten completely with each measurement, before any checkpoint of a later step. A
    resumed run keeps the rows before its checkpoint and measures the others again, so that no row is missing
    or duplicated.

    Args:
        probe: The probe.
        run: Run folder, to which the tables are written.
        data: The training examples.
        step: Step at which training starts: 0, or that of the checkpoint.

    Raises:
        UnsupportedError: If earlier steps were not measured, or with other settings.
    """

    def __init__(self, probe: Probe, run: Run, data: Batch, step: int) -> None:
        self.probe, self.run = probe, run
        self.batch = probe.choose(data)
        self._first = step
        if step == 0:
            run.write_frame(probe.settings_table, probe.settings)
        elif not run.has_frame(probe.table):
            raise UnsupportedError(
                f"run {run.id} was begun without this probe, and is at step {step}; finish it without, move "
                "its folder away, or take another folder of runs."
            )
        probe.require_same(run)
        self._tables: dict[str, pl.DataFrame] = {}

    def record(self, model: Decoder, step: int) -> None:
        """Measure, if this step is due."""
        if step % self.probe.every:
            return
        device = next(model.parameters()).device
        for name, measured in self.probe.measure(model, self.batch.to(device)).items():
            rows = measured.select(pl.lit(step, pl.Int64).alias("step"), pl.all())
            before = self._tables[name] if name in self._tables else self._kept(name)
            self._tables[name] = rows if before is None else pl.concat([before, rows])
            self.run.write_frame(name, self._tables[name])

    def _kept(self, name: str) -> pl.DataFrame | None:
        """Rows of an earlier session that the checkpoint includes."""
        if not self.run.has_frame(name):
            return None
        return self.run.frame(name).filter(pl.col("step") < self._first)


def go_unprobed(run: Run, step: int) -> None:
    """Train a run without a probe: what one has measured before a step 0 that is taken anew is removed.

    Raises:
        UnsupportedError: If a probe has measured earlier steps that are kept.
    """
    for name in [name for name in run.frames if name.endswith(SETTINGS)]:
        if step:
            raise UnsupportedError(
                f"run {run.id} was begun with a probe, which keeps table {name.removesuffix(SETTINGS)!r}; "
                "resume it with the same one, move its folder away, or take another folder of runs."
            )
        for table in (*run.frame(name)[TABLES][0], name):  # The settings last, which name the others.
            run.remove(table)


def _listed(settings: pl.DataFrame) -> str:
    """Settings as keyword arguments."""
    return ", ".join(f"{name}={one!r}" for name, one in settings.drop(TABLES).row(0, named=True).items())
