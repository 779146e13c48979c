"""Names of tables that were measured on a non-default number of examples."""

import re

from spectrope.store import Run


def size_mark(examples: int, draws: int | None = None) -> str:
    """Suffix of the name of a table with a non-default number of examples or draws."""
    return f"-{examples}-examples" + ("" if draws is None else f"-{draws}-draws")


def mark_of(name: str, table: str) -> str | None:
    """The size suffix of a table, "" for the default size; None if the table is not one of `name`.

    Args:
        name: Name of the measurement, such as "ablation" or "spectrum".
        table: Name of a table.
    """
    match = re.fullmatch(rf"{re.escape(name)}((?:-\d+-examples(?:-\d+-draws)?)?)", table)
    return match and match[1]


def fullest(run: Run, name: str) -> str | None:
    """The size suffix of a run's default table, or else of its largest one; None if it has none."""
    marks = [mark for table in run.frames if (mark := mark_of(name, table)) is not None]
    return "" if "" in marks else max(marks, key=_numbers, default=None)


def _numbers(mark: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", mark)]
