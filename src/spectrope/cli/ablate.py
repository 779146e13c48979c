"""`spectrope ablate`: the drop of every head of a trained run."""

from dataclasses import dataclass
from typing import Annotated

import tyro

from spectrope.cli.options import ROOT, DeviceOption, RunsRoot
from spectrope.cli.show import bars, table
from spectrope.core.device import choose_device
from spectrope.core.errors import require
from spectrope.store import resolve_run
from spectrope.sweeps.job import ABLATION_EXAMPLES, ablate, experiment_of


@dataclass(frozen=True, kw_only=True)
class Ablate:
    """Zero each head's output on held-out data and measure the drop in accuracy."""

    run_name: Annotated[
        tyro.conf.Positional[str], tyro.conf.arg(name="run", help="Id (or its start) or folder.")
    ]
    examples: Annotated[int, tyro.conf.arg(help="Held-out examples to measure on.")] = ABLATION_EXAMPLES
    runs: RunsRoot = ROOT
    device: DeviceOption = "auto"

    def run(self) -> None:
        """Ablate, keep the result with the run, print it."""
        require(self.examples >= 1, self, "examples", "at least 1")
        run = resolve_run(self.runs, self.run_name)
        with bars([experiment_of(run).label]) as progress:
            ablate(run, choose_device(self.device), lambda event: progress.watch(0, event), self.examples)
        drops = run.frame("ablation")
        intact = 100 * drops["intact"][0]
        rows = [
            (str(r["layer"]), str(r["head"]), f"{100 * r['ablated']:.1f}", f"{r['drop']:+.1f}")
            for r in drops.sort("drop", descending=True).iter_rows(named=True)
        ]
        title = f"intact {intact:.1f} % of {drops['n'][0]} held-out examples; drop in percentage points"
        table(title, ("layer", "head", "ablated %", "drop"), rows, ("layer", "head", "ablated %", "drop"))
