"""Progress on the terminal: bars while work runs, lines where output is no terminal."""

import contextlib
from collections.abc import Iterator, Sequence

from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Display

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
    """A progress bar per experiment; where output is no terminal, a line when one ends."""

    def __init__(self, display: Display, labels: Sequence[str]) -> None:
        self.display, self.labels = display, labels
        self.bars: list[TaskID] = [
            display.add_task(label, total=1, stage="waiting", start=False) for label in labels
        ]

    def watch(self, progress: Progress) -> None:
        """Show the progress of a job in the bar of its number."""
        stage = STAGES[progress.stage]
        if progress.accuracy is not None:
            stage += f", held-out {100 * progress.accuracy:.1f} %"
        bar = self.bars[progress.job]
        self.display.start_task(bar)
        self.display.update(bar, completed=progress.done, total=progress.total, stage=stage)
        if progress.stage == "done":
            self.display.stop_task(bar)
            if not console.is_terminal:
                say(f"{self.labels[progress.job]}: {stage}")


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
    with Display(*columns, console=console, disable=not console.is_terminal) as display:
        yield Bars(display, labels)


@contextlib.contextmanager
def plan_bar(labels: Sequence[str], pace: Pace) -> Iterator[Watch]:
    """One bar for a whole plan, with the time that is left; where output is no terminal, a line per job."""
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
    """A bar on standard error while the block runs, if that is a terminal."""
    columns = TextColumn(label), BarColumn(bar_width=24), MofNCompleteColumn(), TimeElapsedColumn()
    with Display(*columns, console=errors, transient=True, disable=not errors.is_terminal) as display:
        bar = display.add_task(label, total=None)
        yield lambda progress: display.update(bar, completed=progress.done, total=progress.total)
