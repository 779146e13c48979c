"""Terminal output: text, tables and one-line errors."""

import contextlib
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from spectrope.core import strict_json

if TYPE_CHECKING:
    import polars as pl

NUMBER = re.compile(r"-?\d+(\.\d+)?")


class Piped(Console):
    """Console with its own exit code for a closed pipe: Rich would exit with 1, which means "no" for `audit`
    and `diff`."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


console = Piped()
errors = Console(stderr=True)


@contextlib.contextmanager
def silent(*, when: bool) -> Iterator[None]:
    """Print neither text nor progress while the block runs; errors and `print_json` are still printed."""
    before = console.quiet
    console.quiet = before or when
    try:
        yield
    finally:
        console.quiet = before


def print_json(record: Any) -> None:
    """Print a result as JSON on standard output, also in a `silent` block."""
    print(strict_json(record))


def complain(message: str) -> None:
    """One line on standard error."""
    errors.print(Text(f"spectrope: {message}"), soft_wrap=True)


def say(line: str) -> None:
    """Print a line verbatim: names and paths are not interpreted as markup."""
    console.print(Text(line), soft_wrap=True)


def explain(text: str) -> None:
    """Print words as they are, wrapped to the width of the terminal."""
    console.print(Text(text))


def table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], numeric: Sequence[str] = ()
) -> None:
    """Print a table; columns named in `numeric` are aligned to the right."""
    if title:
        say(title)
    console.print(drawn_table(columns, rows, numeric))


def frame(title: str, data: "pl.DataFrame") -> None:
    """Print a data frame, numbers rounded and to the right."""
    table(title, data.columns, *shown_cells(data))


def drawn_table(columns: Sequence[str], rows: Sequence[Sequence[str]], numeric: Sequence[str] = ()) -> Table:
    """A table as the terminal draws it."""
    drawn = Table(header_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        side = "right" if column in numeric else "left"
        drawn.add_column(escape(column), justify=side, overflow="fold")  # Nothing is cut off.
    for row in rows:
        drawn.add_row(*map(escape, row))
    return drawn


def drawn_frame(data: "pl.DataFrame") -> Table:
    """A data frame as the terminal draws it."""
    return drawn_table(data.columns, *shown_cells(data))


def shown_cells(data: "pl.DataFrame") -> tuple[list[tuple[str, ...]], list[str]]:
    """The rows of a data frame as text, numbers rounded, and its columns of numbers, also those as text."""
    rows = [tuple(map(_cell, row)) for row in data.iter_rows()]
    return rows, [name for name in data.columns if _is_numeric(data[name])]


def _is_numeric(column: "pl.Series") -> bool:
    if column.dtype.is_numeric():
        return True
    known = column.drop_nulls().to_list()
    return bool(known) and all(isinstance(one, str) and NUMBER.fullmatch(one) for one in known)


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value + 0.0:.3g}"  # Never "-0".
    return "" if value is None else str(value)


def lasting(seconds: float) -> str:
    """A time span in words: "40 s", "12 min", "3 h 20 min"."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
