"""`spectrope ablate`: which heads of a trained run matter, how surely."""

from dataclasses import dataclass
from typing import Annotated, Literal

import polars as pl
import tyro

from spectrope.ablation.interventions import Fill
from spectrope.cli.options import ROOT, DeviceOption, RunsRoot
from spectrope.cli.show import bars, console, frame
from spectrope.core.device import choose_device
from spectrope.core.errors import require
from spectrope.stats.sequential import Precision, Threshold
from spectrope.store import resolve_run
from spectrope.sweeps.ablate import (
    EXAMPLES,
    Adaptive,
    Cumulative,
    Exact,
    Method,
    Screen,
    ablate,
    choose_protocol,
    screening_agreement,
)
from spectrope.sweeps.runs import experiment_of


@dataclass(frozen=True, kw_only=True)
class Ablate:
    """Change each head's output before the output projection and measure the drop in accuracy."""

    run_name: Annotated[
        tyro.conf.Positional[str], tyro.conf.arg(name="run", help="Id (or its start) or folder.")
    ]
    method: Annotated[
        Literal["exact", "adaptive", "cumulative", "screen"],
        tyro.conf.arg(help="All examples; as few as decide; head after head; first-order estimates."),
    ] = "exact"
    fill: Annotated[
        Fill | None, tyro.conf.arg(help="What replaces a head's output; None keeps the protocol's (zero).")
    ] = None
    protocol: Annotated[
        str, tyro.conf.arg(help="controlled, or with the faults of the paper's code: R9, R10, released.")
    ] = "controlled"
    examples: Annotated[int, tyro.conf.arg(help="Held-out examples; adaptive may use all there are.")] = (
        EXAMPLES
    )
    half_width: Annotated[
        float | None, tyro.conf.arg(help="adaptive: stop at intervals of this half-width, in points.")
    ] = None
    threshold: Annotated[
        float, tyro.conf.arg(help="adaptive: else stop when |drop| is surely above or below, in points.")
    ] = 5.0
    runs: RunsRoot = ROOT
    device: DeviceOption = "auto"

    def run(self) -> None:
        """Ablate, keep the tables with the run, print them."""
        require(self.examples >= 4, self, "examples", "at least 4")
        run, method = resolve_run(self.runs, self.run_name), self.chosen_method()
        with bars([experiment_of(run).label]) as progress:
            tables = ablate(run, choose_device(self.device), method, lambda event: progress.watch(0, event))
        console.print(f"Drops in percentage points; tables in {run.path}.", highlight=False, soft_wrap=True)
        for name, table in tables.items():
            _print(name, table)

    def chosen_method(self) -> Method:
        """The method that the options describe."""
        protocol = choose_protocol(self.protocol, self.fill)
        if self.method == "adaptive":
            width = self.half_width
            aim = Threshold(self.threshold / 100) if width is None else Precision(width / 100)
            return Adaptive(aim=aim, protocol=protocol)
        if self.method == "screen":
            return Screen(fill=protocol.fill, examples=self.examples)
        kind = Cumulative if self.method == "cumulative" else Exact
        return kind(protocol=protocol, examples=self.examples)


SHOWN = {
    "ablation": ("layer", "head", "drop", "low", "high", "n"),
    "deposit": ("layer", "head", "drop", "gap_low", "share_low", "p_adjusted", "deposit"),
    "adaptive": ("layer", "head", "drop", "drop_low", "drop_high", "n", "saving"),
    "cumulative": ("n_changed", "layer", "head", "single", "drop", "accuracy"),
    "screen": ("layer", "head", "drop", "loss_increase_estimate"),
}
HEADS_SHOWN = 12


def _print(name: str, table: pl.DataFrame) -> None:
    kind = name.split("-")[0]
    shown = table.select(SHOWN[kind])
    if kind in {"ablation", "adaptive", "screen"}:
        shown = shown.sort("drop", descending=True).head(HEADS_SHOWN)
    frame(name, shown)
    if kind == "screen":
        found = screening_agreement(table)
        rho = "undefined" if found.spearman is None else f"{found.spearman:.2f}"
        console.print(f"rank correlation of the estimates with the exact drops: {rho}", highlight=False)
