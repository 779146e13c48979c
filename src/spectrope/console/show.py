"""What commands print: tables and progress on the terminal, one line for a mistake."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import polars as pl
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from spectrope.lab.engines.pace import Pace
from spectrope.lab.events import Event
from spectrope.lab.runs import has_diverged


class Piped(Console):
    """Rich ends a program whose pipe is closed with exit code 1, which is an answer of `audit` and `diff`."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


console = Piped()
errors = Console(stderr=True)

STAGES = {
    "train": "training",
    "ablate": "ablating",
    "spectrum": "measuring",
    "lengths": "measuring",
    "learning": "measuring",
    "done": "done",
}


def complain(message: str) -> None:
    """One line on standard error."""
    errors.print(Text(f"spectrope: {message}"), soft_wrap=True)


def complain_of_divergence(label: str, manifest: Mapping[str, Any]) -> None:
    """Say on standard error of a run whose loss is no number that its accuracy says nothing."""
    if has_diverged(manifest):
        complain(f"{label} diverged: its held-out loss is not finite; a lower learning rate may help.")


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


def frame(title: str, data: pl.DataFrame) -> None:
    """Print a data frame, numbers rounded and to the right."""
    rows = [tuple(map(_cell, row)) for row in data.iter_rows()]
    numeric = [name for name, dtype in data.schema.items() if dtype.is_numeric()]
    table(title, data.columns, rows, numeric)


def _cell(value: object) -> str:
    return "" if value is None else f"{value:.3g}" if isinstance(value, float) else str(value)


class Bars:
    """A progress bar per experiment; where output is no terminal, a line when one ends."""

    def __init__(self, progress: Progress, labels: Sequence[str]) -> None:
        self.progress, self.labels = progress, labels
        self.bars: list[TaskID] = [
            progress.add_task(label, total=1, stage="waiting", start=False) for label in labels
        ]

    def watch(self, number: int, event: Event) -> None:
        """Show what happened in the experiment of that number."""
        stage = STAGES[event.stage]
        if event.accuracy is not None:
            stage += f", held-out {100 * event.accuracy:.1f} %"
        bar = self.bars[number]
        self.progress.start_task(bar)
        self.progress.update(bar, completed=event.done, total=event.total, stage=stage)
        if event.stage == "done":
            self.progress.stop_task(bar)
            if not console.is_terminal:
                say(f"{self.labels[number]}: {stage}")


@contextlib.contextmanager
def bars(labels: Sequence[str]) -> Iterator[Bars]:
    """Progress bars for the experiments of these labels while the block runs."""
    width = max(map(len, labels))
    columns = (
        TextColumn(f"{{task.description:<{width}}}"),
        BarColumn(bar_width=24),
        TimeElapsedColumn(),
        TextColumn("{task.fields[stage]}"),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        yield Bars(progress, labels)


@contextlib.contextmanager
def plan_bar(labels: Sequence[str], pace: Pace) -> Iterator[Callable[[int, Event], None]]:
    """One bar for a whole plan, with the time that is left; where output is no terminal, a line per job."""
    columns = (
        BarColumn(bar_width=24),
        TextColumn("{task.percentage:.0f} %, {task.fields[done]} of {task.fields[jobs]} runs"),
        TextColumn("about {task.fields[left]} left"),
    )
    done = 0
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        bar = progress.add_task("", total=1.0, done=0, jobs=len(labels), left=lasting(pace.remaining))

        def watch(number: int, event: Event) -> None:
            nonlocal done
            pace.watch(number, event)
            left = lasting(pace.remaining)
            if event.stage == "done":
                done += 1
                accuracy = "" if event.accuracy is None else f", held-out {100 * event.accuracy:.1f} %"
                line = f"{done} of {len(labels)}: {labels[number]}{accuracy}; about {left} left"
                say(line)
            progress.update(bar, completed=pace.share, done=done, left=left)

        yield watch


def lasting(seconds: float) -> str:
    """A time span as people say it: "40 s", "12 min", "3 h 20 min"."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
