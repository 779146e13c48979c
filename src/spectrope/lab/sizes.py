"""Names of tables that were measured at another than the default size."""

import re

from spectrope.store import Run


def size_mark(examples: int, draws: int | None = None) -> str:
    """What follows the name of a table that was not measured on the usual number of examples and draws."""
    return f"-{examples}-examples" + ("" if draws is None else f"-{draws}-draws")


def mark_of(name: str, table: str) -> str | None:
    """The mark of size of a table, "" for the usual one; None if it is not what `name` stands for.

    Args:
        name: What is measured, such as "ablation" or "spectrum".
        table: Name of a table.
    """
    match = re.fullmatch(rf"{re.escape(name)}((?:-\d+-examples(?:-\d+-draws)?)?)", table)
    return match and match[1]


def fullest(run: Run, name: str) -> str | None:
    """The mark of the usual table, where a run has it, or of the largest other one; None if it has none."""
    marks = [mark for table in run.frames if (mark := mark_of(name, table)) is not None]
    return "" if "" in marks else max(marks, key=_numbers, default=None)


def _numbers(mark: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", mark)]
