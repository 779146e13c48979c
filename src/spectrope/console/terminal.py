"""What commands print: words, tables and one-line mistakes."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    import polars as pl


class Piped(Console):
    """Rich ends a program whose pipe is closed with exit code 1, which is an answer of `audit` and `diff`."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


console = Piped()
errors = Console(stderr=True)


def complain(message: str) -> None:
    """One line on standard error."""
    errors.print(Text(f"spectrope: {message}"), soft_wrap=True)


def say(line: str) -> None:
    """Print a line as it is, however long: users' names and paths are no markup."""
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
    drawn = Table(header_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        side = "right" if column in numeric else "left"
        drawn.add_column(escape(column), justify=side, overflow="fold")  # Nothing is cut off.
    for row in rows:
        drawn.add_row(*map(escape, row))
    console.print(drawn)


def frame(title: str, data: "pl.DataFrame") -> None:
    """Print a data frame, numbers rounded and to the right."""
    rows = [tuple(map(_cell, row)) for row in data.iter_rows()]
    numeric = [name for name, dtype in data.schema.items() if dtype.is_numeric()]
    table(title, data.columns, rows, numeric)


def _cell(value: object) -> str:
    return "" if value is None else f"{value:.3g}" if isinstance(value, float) else str(value)


def lasting(seconds: float) -> str:
    """A time span as people say it: "40 s", "12 min", "3 h 20 min"."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
