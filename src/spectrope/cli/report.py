"""`spectrope report`: the page, or one figure, from disk alone."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from spectrope.cli.options import ROOT, RunsRoot
from spectrope.cli.show import complain, say
from spectrope.core.errors import StoreError
from spectrope.report import save_figure, write_report
from spectrope.store import Run, resolve_run, survey
from spectrope.sweeps.laboratories import MARK


@dataclass(frozen=True, kw_only=True)
class Report:
    """Rebuild the report, or save one of its figures, from finished runs."""

    names: Annotated[
        tyro.conf.Positional[tuple[str, ...]],
        tyro.conf.arg(
            name="run",
            help="Ids (or their starts) or folders; none means all finished ones but trials and grokking.",
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
            chosen = shown_runs(self.runs)
        if not chosen:
            raise StoreError(f"no finished run in {self.runs}; `spectrope compare` makes some.")
        if self.figure is None:
            write_report(chosen, self.out)
        else:
            save_figure(chosen, self.figure, self.out)
        say(f"Wrote {self.out.resolve()}")


def shown_runs(root: Path) -> list[Run]:
    """The finished runs of a folder that belong to a report; what cannot be read is named on standard error."""
    found, broken = survey(root)
    for path, reason in broken:
        complain(f"left out: {path.name}: {reason}")
    return [run for run in found if run.finished and is_shown(run)]


def is_shown(run: Run) -> bool:
    """Whether a run belongs to a report without being named: no trial of a rate, of no other laboratory."""
    return run.config.get("tuning") != "trial" and MARK not in run.config
