"""Display of results, as text and tables, in a terminal, in a notebook and as plain text."""

import io
from abc import ABC, abstractmethod
from collections.abc import Iterable
from html import escape
from typing import TYPE_CHECKING, Any

from rich.console import Console

from spectrope.console.terminal import console, drawn_frame, explain, frame, shown_cells

if TYPE_CHECKING:
    import polars as pl

MOST_ROWS = 1000  # Of a table in a notebook; `to_frame` has them all.


class Shown(ABC):
    """A result of text and tables, displayed in the same way in a notebook, at a prompt and by a command."""

    @abstractmethod
    def parts(self) -> Iterable["str | tuple[str, pl.DataFrame]"]:
        """Text, and tables with their titles, in reading order."""

    @abstractmethod
    def to_frame(self) -> "pl.DataFrame":
        """The main table, whole."""

    def to_dict(self) -> dict[str, Any]:
        """The result as JSON-ready values: its tables by name, each a list of rows."""
        tables = getattr(self, "tables", {"rows": self.to_frame()})
        return {name: table.to_dicts() for name, table in tables.items()}

    def __repr__(self) -> str:
        text = Console(file=io.StringIO(), width=console.width, color_system=None, force_jupyter=False)
        with text.capture() as captured:
            for part in self.parts():
                _print(text, part)
        return captured.get().rstrip()

    def _repr_html_(self) -> str:
        return "\n".join(map(_as_html, self.parts()))


def show(result: Shown) -> None:
    """Print a result on the terminal."""
    for part in result.parts():
        if isinstance(part, str):
            explain(part)
        else:
            frame(*part)


def html_table(columns: Iterable[str], rows: Iterable[Iterable[str]], numeric: Iterable[str] = ()) -> str:
    """A table of text as HTML, escaped."""
    names, right = list(columns), set(numeric)
    sides = ["right" if name in right else "left" for name in names]

    def row(cells: Iterable[str], tag: str) -> str:
        drawn = (
            f'<{tag} style="text-align:{side}">{escape(cell)}</{tag}>'
            for cell, side in zip(cells, sides, strict=True)
        )
        return f"<tr>{''.join(drawn)}</tr>"

    body = "".join(row(cells, "td") for cells in rows)
    return f"<table><thead>{row(names, 'th')}</thead><tbody>{body}</tbody></table>"


def _print(text: Console, part: "str | tuple[str, pl.DataFrame]") -> None:
    if isinstance(part, str):
        text.print(part, markup=False, highlight=False)
        return
    title, data = part
    if title:
        text.print(title, markup=False, highlight=False)
    text.print(drawn_frame(data))


def _as_html(part: "str | tuple[str, pl.DataFrame]") -> str:
    if isinstance(part, str):
        return f"<p>{escape(part)}</p>"
    title, data = part
    heading = f"<p><b>{escape(title)}</b></p>" if title else ""
    left = len(data) - MOST_ROWS
    note = f"<p>{MOST_ROWS:,} of {len(data):,} rows; `to_frame()` has all of them.</p>" if left > 0 else ""
    return heading + html_table(data.columns, *shown_cells(data.head(MOST_ROWS))) + note
