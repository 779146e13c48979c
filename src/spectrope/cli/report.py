"""`spectrope report`: the page, or one figure, from disk alone."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from spectrope.cli.options import ROOT, RunsRoot
from spectrope.cli.show import say
from spectrope.core.errors import StoreError
from spectrope.report import save_figure, write_report
from spectrope.store import Run, find_runs, resolve_run


@dataclass(frozen=True, kw_only=True)
class Report:
    """Rebuild the report, or save one of its figures, from finished runs."""

    names: Annotated[
        tyro.conf.Positional[tuple[str, ...]],
        tyro.conf.arg(
            name="run", help="Ids (or their starts) or folders; none means all finished ones but trials."
        ),
    ] = ()
    figure: Annotated[
        str | None, tyro.conf.arg(help="Save this figure alone; the suffix of --out says png, svg or pdf.")
    ] = None
    out: Annotated[Path, tyro.conf.arg(help="File to write.")] = Path("report.html")
    runs: RunsRoot = ROOT

    def run(self) -> None:
        """Write the file and print its path last."""
        if self.names:
            chosen = [resolve_run(self.runs, name) for name in self.names]
        else:
            chosen = [run for run in find_runs(self.runs) if run.finished and not is_trial(run)]
        if not chosen:
            raise StoreError(f"no finished run in {self.runs}; `spectrope compare` makes some.")
        if self.figure is None:
            write_report(chosen, self.out)
        else:
            save_figure(chosen, self.figure, self.out)
        say(f"Wrote {self.out.resolve()}")


def is_trial(run: Run) -> bool:
    """Whether a run was made only to choose a learning rate."""
    return run.config.get("tuning") == "trial"
