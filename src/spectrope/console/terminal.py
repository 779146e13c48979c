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

HEADING = 8  # Letters of a heading that stay on one line; text is folded to as few.
GAP = 3  # Spaces between two columns of a table.
NUMBER = re.compile(r"-?\d+(\.\d+)?")
CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


class Piped(Console):
    """Console with its own exit code for a closed pipe: Rich would exit with 1, which means "no" for `audit`
    and `diff`."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


console = Piped()
errors = Piped(stderr=True)


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
    errors.print(Text(f"spectrope: {harmless(message)}"), soft_wrap=True)


def say(line: str) -> None:
    """Print a line verbatim: names and paths are not interpreted as markup."""
    console.print(Text(harmless(line)), soft_wrap=True)


def explain(text: str) -> None:
    """Print words as they are, wrapped to the width of the terminal."""
    console.print(Text(harmless(text)))


def harmless(text: str) -> str:
    """Text with a mark in place of each character that controls a terminal or the direction of writing.

    Names in files of others could otherwise clear the screen, change its title or reorder what it shows.
    """
    return CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text)


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
    """A table as the terminal draws it: text is folded, numbers never are.

    Columns of numbers that do not fit are left out from the right, and named below the table.
    """
    drawn = Table(header_style="bold", box=box.SIMPLE_HEAD, pad_edge=False, caption_justify="left")
    shown = _fitting(columns, rows, numeric)
    for i in shown:
        number = columns[i] in numeric
        drawn.add_column(
            escape(harmless(columns[i])),
            justify="right" if number else "left",
            overflow="fold",  # Nothing is cut off.
            min_width=_least(columns, rows, i) if number else None,
        )
    for row in rows:
        drawn.add_row(*(escape(harmless(row[i])) for i in shown))
    if len(shown) < len(columns):
        omitted = ", ".join(columns[i] for i in range(len(columns)) if i not in shown)
        drawn.caption = escape(f"Omitted at this width: {omitted}.")
    return drawn


def _fitting(columns: Sequence[str], rows: Sequence[Sequence[str]], numeric: Sequence[str]) -> list[int]:
    """Places of the columns that are drawn: all, or without the last ones of numbers that do not fit."""
    widths = {
        i: GAP + (_least(columns, rows, i) if name in numeric else HEADING) for i, name in enumerate(columns)
    }
    numbers = [i for i, name in enumerate(columns) if name in numeric]
    while len(numbers) > 1 and sum(widths.values()) > console.width:
        del widths[numbers.pop()]
    return list(widths)


def _least(columns: Sequence[str], rows: Sequence[Sequence[str]], i: int) -> int:
    """Width that holds every cell of a column, and the words of its heading up to `HEADING` letters."""
    heading = max((len(word) for word in columns[i].split()), default=0)
    return max([min(heading, HEADING), *(len(row[i]) for row in rows)])


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


def with_options(message: str) -> str:
    """A message of the library's, with options of the command line in the place of Python's arguments."""

    def option(match: re.Match[str]) -> str:
        return f"--{match['name'].replace('_', '-')}" + (f" {match['text']}" if match["text"] else "")

    return re.sub(r"\b(?P<name>[a-z_]+)=(?:True|'(?P<text>\w+)')(?!\w|,(?! or\b))", option, message)
