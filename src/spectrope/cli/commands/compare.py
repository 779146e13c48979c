"""`spectrope compare`: train and ablate one decoder per encoding, and write a report."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from spectrope.console import (
    RARE,
    ROOT,
    ConditionOption,
    DropPositions,
    EngineOptions,
    Epochs,
    Examples,
    JsonOption,
    OutPage,
    PrecisionOption,
    RunsRoot,
    ScaleOption,
    Seeds,
    Settings,
    changes_of,
    chosen_seeds,
    print_json,
    refuse_given,
    say,
    show,
)
from spectrope.core import ConfigError, require
from spectrope.figures import check_page
from spectrope.front.compare import compare
from spectrope.lab import COMPARED, COMPARED_TASKS, FACTORS, SCALINGS


@dataclass(frozen=True, kw_only=True)
class Compare(EngineOptions):
    """Train and ablate a decoder per encoding, and write a report.

    Examples:
    $ spectrope compare --encodings rope alibi nope --tasks distance
    $ spectrope compare --seeds 0:6 --encodings rope alibi --lengths 1 2 4
    """

    encodings: Annotated[
        tuple[str, ...],
        tyro.conf.arg(help="Names listed by `spectrope encodings`, or file.py:Class."),
    ] = COMPARED
    tasks: Annotated[
        tuple[str, ...], tyro.conf.arg(help="Names listed by `spectrope tasks`, or file.py:Class.")
    ] = COMPARED_TASKS
    scale: ScaleOption = "mini"
    condition: ConditionOption = "controlled"
    seeds: Seeds = ("0",)
    epochs: Epochs = None
    examples: Examples = None
    set: Settings = ()
    precision: PrecisionOption = "auto"
    tune: Annotated[
        bool,
        tyro.conf.arg(help="Also train each encoding at its best learning rate."),
    ] = False
    rates: Annotated[
        tuple[float, ...],
        tyro.conf.arg(help="Learning rates tried by --tune, as multiples of the scale's rate."),
        RARE,
    ] = FACTORS
    lengths: Annotated[
        tuple[float, ...],
        tyro.conf.arg(help="Also score at these multiples of the trained length."),
    ] = ()
    scalings: Annotated[
        tuple[str, ...],
        tyro.conf.arg(help=f"How positions are scaled, with --lengths: {', '.join(SCALINGS)}."),
        RARE,
    ] = ("none",)
    drop_positions: DropPositions = None
    runs: RunsRoot = ROOT
    out: OutPage = Path("report.html")
    json: JsonOption = False

    def run(self) -> None:
        """Train the runs that do not exist yet, print the table, and write the report."""
        for field in ("encodings", "tasks", "seeds", "rates"):
            if not getattr(self, field):
                raise ConfigError(f"--{field} must be followed by at least one value; got none.")
        check_page(self.out)
        require(all(rate > 0 for rate in self.rates), self, "rates", "positive")
        if not self.tune:
            refuse_given(self, ("rates",), "goes with --tune.")
        if not self.lengths:
            refuse_given(self, ("scalings",), "goes with --lengths.")
        comparison = compare(
            self.encodings,
            self.tasks,
            chosen_seeds(self.seeds),
            scale=self.scale,
            condition=self.condition,
            epochs=self.epochs,
            n_examples=self.examples,
            settings=changes_of(self.set, self.precision, self.drop_positions),
            rates=self.rates if self.tune else None,
            lengths=self.lengths or None,
            scalings=self.scalings,
            root=self.runs,
            **self.arguments(),
        )
        show(comparison)
        report = comparison.report(self.out).resolve()
        say(f"Report: {report}")
        if self.json:
            print_json(comparison.to_dict() | {"report": str(report)})
