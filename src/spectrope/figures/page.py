"""The report: one self-contained HTML file that needs no network."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from spectrope.figures.base import FIGURES, Figure, Panel, declared_tables
from spectrope.figures.names import DIVERGING, styles
from spectrope.figures.shell import rendered, write_page
from spectrope.figures.summary import about, figure_command, headline, rebuild_command, rows_of
from spectrope.figures.tables import Tables, read_tables
from spectrope.store import Run

NAMED = 3  # Settings that a title has room for.


@dataclass(frozen=True)
class FigureGroup:
    """Panels under one heading, and the end of their colour scale."""

    title: str
    panels: list[Panel]
    ramp: float | None


@dataclass(frozen=True)
class FigureSection:
    """One figure of the page."""

    figure: Figure
    caption: str
    groups: list[FigureGroup]
    command: str


def write_report(runs: Sequence[Run], path: str | Path) -> Path:
    """Write the page of some finished runs, whole or not at all.

    Args:
        runs: Finished runs; those that have not been ablated are shown without drops.
        path: HTML file to write.

    Returns:
        The path.

    Raises:
        ConfigError: If there is no run.
        StoreError: If a run is unfinished or damaged, or the file cannot be written.
    """
    path = Path(path)
    tables = read_tables(runs, declared_tables(FIGURES[name] for name in FIGURES))
    return write_page(render(tables, path), path)


def render(tables: Tables, path: Path) -> str:
    """The page as text; `path` is where the command that rebuilds it will write."""
    sections = _sections(tables)
    return rendered(
        "page.html",
        [panel for section in sections for group in section.groups for panel in group.panels],
        tables=tables,
        where=_where(tables),
        runs=[(run, run.config, run.manifest) for run in tables.sources],
        dump=lambda *parts: "\n".join(json.dumps(part, indent=2) for part in parts),
        about=about(tables.sources),
        headline=headline(tables),
        rows={setting: rows_of(tables, setting) for setting in tables.settings},
        sections=sections,
        styles=styles(tables.encodings),
        ramp=DIVERGING,
        command=rebuild_command(tables.sources, path),
    )


def _where(tables: Tables) -> str:
    """The settings of the runs in words; their tasks where there are more than `NAMED`."""
    settings = tables.settings
    if len(settings) <= NAMED:
        return " and on ".join(settings)
    tasks = sorted({str(run.config["task"]["kind"]) for run in tables.sources})
    return f"{', '.join(tasks)} in {len(settings)} settings"


def _sections(tables: Tables) -> list[FigureSection]:
    """The figures that these runs have the tables for, and panels in."""
    sections = []
    for figure in sorted((FIGURES[name]() for name in FIGURES), key=lambda figure: figure.place):
        if tables[figure.needs].is_empty():
            continue
        groups = []
        for title, panels in groupby(figure.panels(tables), key=lambda panel: panel.group):
            groups.append(FigureGroup(title, list(panels), figure.ramp(tables, title)))
        if groups:
            command = figure_command(tables.sources, figure.kind)
            sections.append(FigureSection(figure, figure.caption(tables), groups, command))
    return sections
