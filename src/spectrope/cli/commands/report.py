"""`spectrope report`: write the page of runs, or one figure, from stored results."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from spectrope.console import ROOT, JsonOption, RunsRoot, print_json, say
from spectrope.figures import FIGURES, check_figure, check_page
from spectrope.front.figure import figure, report
from spectrope.store import resolve_run


@dataclass(frozen=True, kw_only=True)
class Report:
    """Write the report of finished runs, or one of its figures.

    Examples:
    $ spectrope report --out report.html
    $ spectrope report --figure heatmap --out heatmap.pdf
    """

    names: Annotated[
        tyro.conf.Positional[tuple[str, ...]],
        tyro.conf.arg(
            name="run",
            help="Ids or folders of runs (default: all finished runs, tuning trials and grokking excluded).",
        ),
    ] = ()
    figure: Annotated[
        str | None,
        tyro.conf.arg(help="Save only this figure: a name, or file.py:Class."),
    ] = None
    out: Annotated[
        Path | None,
        tyro.conf.arg(help="File to write (default: report.html, or FIGURE.svg)."),
    ] = None
    runs: RunsRoot = ROOT
    json: JsonOption = False

    def run(self) -> None:
        """Write the file and print its path last."""
        out = self._out()
        chosen = [resolve_run(self.runs, name) for name in self.names] or self.runs
        drawn = report(chosen, out) if self.figure is None else figure(chosen, self.figure).save(out)
        say(f"Wrote {drawn.resolve()}")
        if self.json:
            print_json({"path": str(drawn.resolve())})

    def _out(self) -> Path:
        """Where the file goes, once that place is known to be free for it."""
        if self.figure is None:
            out = self.out or Path("report.html")
            check_page(out)
        else:
            out = self.out or Path(f"{FIGURES.resolve(self.figure)}.svg")
            check_figure(out)
        return out
