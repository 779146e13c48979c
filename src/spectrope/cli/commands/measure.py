"""`spectrope measure`: one measure of a finished run."""

from dataclasses import dataclass
from typing import Annotated

import tyro

from spectrope.console import ROOT, DeviceOption, JsonOption, Own, RunsRoot, bars, frame, print_json, say
from spectrope.core import choose_device
from spectrope.front import take_up
from spectrope.lab import MEASURES, experiment_of
from spectrope.store import resolve_run

ROWS_SHOWN = 12
PLAIN = [name for name in MEASURES if "-" not in name]  # Without variants of a measure, such as ablation-all.


@dataclass(frozen=True, kw_only=True)
class Measure:
    """Apply a measure to a finished run, and store its table there.

    Examples:
    $ spectrope measure RUN spectrum
    $ spectrope measure RUN ./own.py:Entropy
    """

    target: Annotated[
        tyro.conf.Positional[str],
        tyro.conf.arg(name="run", help="Id of a run, its first characters, or a folder."),
    ]
    measure: Annotated[
        tyro.conf.Positional[str], tyro.conf.arg(help=f"{', '.join(PLAIN)}, or file.py:Class.")
    ]
    own: Own = ()
    runs: RunsRoot = ROOT
    device: DeviceOption = "auto"
    json: JsonOption = False

    def run(self) -> None:
        """Measure, and print the first rows of the table."""
        run = resolve_run(self.runs, self.target)
        run.require_writable()
        take_up(self.own, run)
        name = MEASURES.resolve(self.measure)
        with bars([experiment_of(run).label]) as progress:
            MEASURES[name]().take(run, choose_device(self.device), progress.watch)
        table = run.frame(name)
        frame(name, table.head(ROWS_SHOWN))
        say(f"Table {name!r}, {len(table)} rows, in {run.path}.")
        if self.json:
            print_json({"run": run.id, "measure": name, "rows": table.to_dicts()})
