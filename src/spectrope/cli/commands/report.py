"""`spectrope report`: the page, or one figure, from disk alone."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from spectrope.console import ROOT, RunsRoot, complain, say
from spectrope.core import StoreError
from spectrope.figures import FIGURES, check_figure, check_page, save_figure, write_report
from spectrope.lab import MARK
from spectrope.store import Run, resolve_run, survey


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
        str | None,
        tyro.conf.arg(help="Save this one alone, a name or file.py:Class; --out says png, svg or pdf."),
    ] = None
    out: Annotated[
        Path | None,
        tyro.conf.arg(help="File to write; None takes report.html, or FIGURE.svg."),
    ] = None
    runs: RunsRoot = ROOT

    def run(self) -> None:
        """Write the file and print its path last."""
        out = self._out()
        if self.names:
            chosen = [resolve_run(self.runs, name) for name in self.names]
        else:
            chosen = shown_runs(self.runs)
        if not chosen:
            raise StoreError(f"no finished run in {self.runs}; `spectrope compare` makes some.")
        if self.figure is None:
            write_report(chosen, out)
        else:
            save_figure(chosen, self.figure, out)
        say(f"Wrote {out.resolve()}")

    def _out(self) -> Path:
        """Where the file goes, once that place is known to be free for it."""
        if self.figure is None:
            out = self.out or Path("report.html")
            check_page(out)
        else:
            out = self.out or Path(f"{FIGURES.resolve(self.figure)}.svg")
            check_figure(out)
        return out


def shown_runs(root: Path) -> list[Run]:
    """The finished runs of a folder that belong to a report; those that cannot be read are complained of."""
    runs, broken = survey(root)
    for path, reason in broken:
        complain(f"left out: {path.name}: {reason}")
    return [run for run in runs if run.finished and is_shown(run)]


def is_shown(run: Run) -> bool:
    """Whether a run belongs to a report without being named: no trial of a rate, of no other laboratory."""
    return run.config.get("tuning") != "trial" and MARK not in run.config
