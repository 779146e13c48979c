"""`spectrope compare`: the main job."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from spectrope.console import (
    ROOT,
    WORKERS,
    ConditionOption,
    DeviceOption,
    Epochs,
    Examples,
    RunsRoot,
    ScaleOption,
    refuse_given,
    say,
    show,
)
from spectrope.core import require
from spectrope.figures import check_page
from spectrope.front.compare import compare
from spectrope.lab import COMPARED, COMPARED_TASKS, FACTORS
from spectrope.tasks import TASKS


@dataclass(frozen=True, kw_only=True)
class Compare:
    """Train a decoder with each encoding on each task, ablate every head, and write a report."""

    encodings: Annotated[
        tuple[str, ...],
        tyro.conf.arg(help="Names that `spectrope encodings` lists, mla+NAME, or file.py:Class."),
    ] = COMPARED
    tasks: Annotated[tuple[str, ...], tyro.conf.arg(help=f"{', '.join(TASKS)}, or file.py:Class.")] = (
        COMPARED_TASKS
    )
    scale: ScaleOption = "mini"
    condition: ConditionOption = "controlled"
    seeds: Annotated[tuple[int, ...], tyro.conf.arg(help="One run per seed, task and encoding.")] = (0,)
    epochs: Epochs = None
    examples: Examples = None
    tune: Annotated[
        bool,
        tyro.conf.arg(help="Also run each encoding at the best rate of one grid, judged on training data."),
    ] = False
    rates: Annotated[
        tuple[float, ...], tyro.conf.arg(help="The grid, as multiples of the scale's learning rate.")
    ] = FACTORS
    runs: RunsRoot = ROOT
    out: Annotated[Path, tyro.conf.arg(help="The report, one self-contained HTML file.")] = Path(
        "report.html"
    )
    device: DeviceOption = "auto"
    workers: Annotated[int, tyro.conf.arg(help="Processes on a CPU; one per core by default.")] = WORKERS

    def run(self) -> None:
        """Run what is not in the run folders yet, print the table, write the report."""
        require(self.workers >= 1, self, "workers", "at least 1")
        for field in ("encodings", "tasks", "seeds", "rates"):
            require(len(getattr(self, field)) > 0, self, field, "at least one")
        check_page(self.out)
        require(all(rate > 0 for rate in self.rates), self, "rates", "positive")
        if not self.tune:
            refuse_given(self, ("rates",), "goes with --tune.")
        comparison = compare(
            self.encodings,
            self.tasks,
            self.seeds,
            scale=self.scale,
            condition=self.condition,
            epochs=self.epochs,
            n_examples=self.examples,
            rates=self.rates if self.tune else None,
            root=self.runs,
            device=self.device,
            workers=self.workers,
        )
        show(comparison)
        say(f"Report: {comparison.report(self.out).resolve()}")
