"""`spectrope paper`: the paper's figures and tables by their numbers, from stored results."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from tyro.conf import subcommand

from spectrope.console import JsonOption, ScaleOption, chosen_seeds, complain, print_json, say
from spectrope.console import table as terminal_table
from spectrope.core import ConfigError, StoreError, UnknownNameError
from spectrope.figures import check_figure, check_page
from spectrope.lab import CONDITIONS, OWN, OWN_TASKS, SCALES
from spectrope.store import survey
from spectrope.study.commands._common import Results, existing_rows
from spectrope.study.page.paper.arms import PaperRuns
from spectrope.study.page.paper.items import figure_of, table_of
from spectrope.study.page.paper.page import drawing, write_paper
from spectrope.study.rows import StudyRow, StudyRows
from spectrope.study.study import RESULTS

Number = Annotated[
    tyro.conf.Positional[int],
    tyro.conf.arg(name="number", help="Number of the figure or table in the paper."),
]


@dataclass(frozen=True, kw_only=True)
class _Stored:
    """Which results are shown."""

    scale: ScaleOption = "mini"
    condition: Annotated[str, tyro.conf.arg(help=f"One of {', '.join(CONDITIONS)}.")] = "controlled"
    seeds: Annotated[
        tuple[str, ...], tyro.conf.arg(metavar="N|N:M ...", help="Seeds to look for, such as 0:6.")
    ] = ("0:30",)
    rows: Results = RESULTS
    runs: Annotated[
        Path | None, tyro.conf.arg(help="Folder of runs to read instead of the stored results.")
    ] = None

    def asked(self) -> PaperRuns:
        """The results, read."""
        for name, value, known in (("scale", self.scale, SCALES), ("condition", self.condition, CONDITIONS)):
            if value not in known:
                raise UnknownNameError(name, value, known)
        rows = existing_rows(self.rows, self.scale) if self.runs is None else _rows_of(self.runs)
        return PaperRuns(rows, self.scale, self.condition, chosen_seeds(self.seeds))


@dataclass(frozen=True, kw_only=True)
class PaperFigures(_Stored):
    """Draw a figure of the paper from stored results.

    Examples:
    $ spectrope paper figure 4
    $ spectrope paper figure 2 --condition released --out figure-2.png
    """

    number: Number
    out: Annotated[Path | None, tyro.conf.arg(help="File to write (default: figure-N.svg).")] = None
    json: JsonOption = False

    def run(self) -> None:
        """Draw it, and print what the paper says of it and where the file is."""
        figure, out = figure_of(self.number), self.out or Path(f"figure-{self.number}.svg")
        check_figure(out)
        runs = self.asked()
        drawing(figure, runs).save(out)
        say(f"{figure.name.capitalize()}: {figure.title}. {figure.says}")
        say(f"Wrote {out.resolve()}")
        if self.json:
            values = {
                panel.title: {name: list(one.rows) for name, one in panel.layers.items()}
                for panel in figure.panels(runs)
            }
            print_json({"path": str(out.resolve()), "values": values})


@dataclass(frozen=True, kw_only=True)
class PaperTables(_Stored):
    """Print a table of the paper with our values beside the published ones.

    Examples:
    $ spectrope paper table 1
    $ spectrope paper table 1 --condition released
    """

    number: Number
    json: JsonOption = False

    def run(self) -> None:
        """Print it."""
        chosen, runs = table_of(self.number), self.asked()
        table = chosen.table(runs)
        say(f"{table.title}. {table.caption}")
        terminal_table("", tuple(table.rows[0]), [tuple(row.values()) for row in table.rows])
        if self.json:
            print_json(chosen.records(runs))


@dataclass(frozen=True, kw_only=True)
class PaperPage(_Stored):
    """Write one page with all figures and tables of the paper.

    Examples:
    $ spectrope paper page
    $ spectrope paper page --condition released --out released.html
    """

    out: Annotated[Path, tyro.conf.arg(help="File to write.")] = Path("paper.html")
    json: JsonOption = False

    def run(self) -> None:
        """Write it, and print its path."""
        check_page(self.out)
        path = write_paper(self.asked(), self.out).resolve()
        say(f"Wrote {path}")
        if self.json:
            print_json({"path": str(path)})


PaperAction = (
    Annotated[PaperFigures, subcommand("figure")]
    | Annotated[PaperTables, subcommand("table")]
    | Annotated[PaperPage, subcommand("page")]
)


@dataclass(frozen=True, kw_only=True)
class Paper:
    """Show the paper's figures and tables by their numbers.

    Examples:
    $ spectrope paper figure 4
    $ spectrope paper table 1
    """

    action: PaperAction

    def run(self) -> None:
        """Do what is asked."""
        self.action.run()


def _rows_of(root: Path) -> StudyRows:
    """The rows of the finished runs of a folder.

    Raises:
        ConfigError: If there is no such folder.
    """
    if not root.is_dir():
        raise ConfigError(f"--runs {root} is not a folder; `spectrope compare` makes run folders.")
    runs, broken = survey(root)
    complaints = [f"{path.name}: {reason}" for path, reason in broken]
    rows = []
    for run in runs:
        try:
            if run.finished and not {OWN, OWN_TASKS} & set(run.config):
                rows.append(StudyRow.of(run))
        except (ConfigError, StoreError) as error:
            complaints.append(f"{run.path.name}: {error}")
    for complaint in complaints:
        complain(f"left out: {complaint}")
    return StudyRows.of(rows)
