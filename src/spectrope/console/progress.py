"""Progress on the terminal: bars while work runs, lines where output is no terminal."""

import contextlib
from collections.abc import Callable, Iterator, Sequence

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from spectrope.console.terminal import console, errors, lasting, say
from spectrope.lab.engines.pace import Pace
from spectrope.lab.events import Event

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


@contextlib.contextmanager
def counted(label: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on standard error while the block runs, if that is a terminal; told of steps done and in all."""
    columns = TextColumn(label), BarColumn(bar_width=24), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as shown:
        bar = shown.add_task(label, total=None)
        yield lambda done, total: shown.update(bar, completed=done, total=total)
