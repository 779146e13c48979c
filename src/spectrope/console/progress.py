"""Progress bars in a terminal or a notebook; lines elsewhere."""

import contextlib
from collections.abc import Iterator, Sequence

from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Display

from spectrope.console.notebook import NotebookBars, notebook_bars, notebook_display
from spectrope.console.terminal import console, errors, lasting, say
from spectrope.core import Progress, Watch
from spectrope.lab import Pace

STAGES = {
    "train": "training",
    "ablate": "ablating",
    "spectrum": "measuring",
    "lengths": "measuring",
    "learning": "measuring",
    "done": "done",
}


class Bars:
    """A progress bar per experiment, or a line at its end if the output is not a terminal."""

    def __init__(self, display: Display, labels: Sequence[str]) -> None:
        self.display, self.labels = display, labels
        self.bars: list[TaskID] = [
            display.add_task(label, total=1, stage="waiting", start=False) for label in labels
        ]

    def watch(self, progress: Progress) -> None:
        """Show the progress of a job in the bar of its number."""
        stage = stage_of(progress)
        bar = self.bars[progress.job]
        self.display.start_task(bar)
        self.display.update(bar, completed=progress.done, total=progress.total, stage=stage)
        if progress.stage == "done":
            self.display.stop_task(bar)
            if not console.is_terminal:
                say(f"{self.labels[progress.job]}: {stage}")


def stage_of(progress: Progress) -> str:
    """Short description of the current stage, with the latest accuracy."""
    accuracy = "" if progress.accuracy is None else f", held-out {100 * progress.accuracy:.1f} %"
    return STAGES.get(progress.stage, progress.stage) + accuracy


@contextlib.contextmanager
def bars(labels: Sequence[str]) -> Iterator[Bars | NotebookBars]:
    """Progress bars for the experiments of these labels while the block runs."""
    if (display_cell := notebook_display()) is not None:
        with notebook_bars(display_cell, labels, stage_of) as cell:
            yield cell
        return
    width = max(map(len, labels))
    columns = (
        TextColumn(f"{{task.description:<{width}}}"),
        BarColumn(bar_width=24),
        TimeElapsedColumn(),
        TextColumn("{task.fields[stage]}"),
    )
    with Display(*columns, console=console, disable=not console.is_terminal) as display:
        yield Bars(display, labels)


@contextlib.contextmanager
def plan_bar(labels: Sequence[str], pace: Pace) -> Iterator[Watch]:
    """One bar for a whole plan, with the remaining time; one line per job if output is not a terminal."""
    columns = (
        BarColumn(bar_width=24),
        TextColumn("{task.percentage:.0f} %, {task.fields[done]} of {task.fields[jobs]} runs"),
        TextColumn("about {task.fields[left]} left"),
    )
    done = 0
    with Display(*columns, console=console, disable=not console.is_terminal) as display:
        bar = display.add_task("", total=1.0, done=0, jobs=len(labels), left=lasting(pace.remaining))

        def watch(progress: Progress) -> None:
            nonlocal done
            pace.watch(progress)
            left = lasting(pace.remaining)
            if progress.stage == "done":
                done += 1
                accuracy = "" if progress.accuracy is None else f", held-out {100 * progress.accuracy:.1f} %"
                say(f"{done} of {len(labels)}: {labels[progress.job]}{accuracy}; about {left} left")
            display.update(bar, completed=pace.share, done=done, left=left)

        yield watch


@contextlib.contextmanager
def counted(label: str) -> Iterator[Watch]:
    """A bar while the block runs, in a notebook, or on standard error if that is a terminal."""
    if (display_cell := notebook_display()) is not None:
        with notebook_bars(display_cell, [label], lambda at: f"{at.done} of {at.total}") as cell:
            yield cell.watch
        return
    columns = TextColumn(label), BarColumn(bar_width=24), MofNCompleteColumn(), TimeElapsedColumn()
    hidden = console.quiet or not errors.is_terminal
    with Display(*columns, console=errors, transient=True, disable=hidden) as display:
        bar = display.add_task(label, total=None)
        yield lambda progress: display.update(bar, completed=progress.done, total=progress.total)
