"""Progress bars in a notebook, in an output that is redrawn, without widgets."""

import contextlib
import importlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from html import escape
from typing import Any

from spectrope.core import Progress

SECONDS_BETWEEN_DRAWINGS = 0.2


def notebook_display() -> Callable[..., Any] | None:
    """IPython's `display` where a cell's output can be drawn anew, as in Jupyter; None everywhere else."""
    get_shell = getattr(sys.modules.get("IPython"), "get_ipython", None)
    if get_shell is None or not hasattr(get_shell(), "kernel"):
        return None
    return importlib.import_module("IPython.display").display


@contextlib.contextmanager
def notebook_bars(
    display: Callable[..., Any], labels: Sequence[str], words: Callable[[Progress], str]
) -> Iterator["NotebookBars"]:
    """Bars in the output of a cell while the block runs; how they end is drawn in any case."""
    shown = NotebookBars(display, labels, words)
    try:
        yield shown
    finally:
        shown.draw()


class NotebookBars:
    """A progress bar per job, in the output of the cell that runs.

    Args:
        display: IPython's.
        labels: One per job.
        words: Text about a job's progress, shown next to its bar.
    """

    def __init__(
        self, display: Callable[..., Any], labels: Sequence[str], words: Callable[[Progress], str]
    ) -> None:
        self.labels, self.words = labels, words
        self.last: dict[int, Progress] = {}
        self.drawn = -SECONDS_BETWEEN_DRAWINGS
        self.handle = display(self, display_id=True)

    def watch(self, progress: Progress) -> None:
        """Show the progress of a job in the bar of its number; at most a few drawings a second."""
        self.last[progress.job] = progress
        if time.monotonic() - self.drawn >= SECONDS_BETWEEN_DRAWINGS:
            self.draw()

    def draw(self) -> None:
        """Draw all bars as they are now."""
        self.drawn = time.monotonic()
        self.handle.update(self)

    def __repr__(self) -> str:
        return "\n".join(f"{label}: {self._words(job)}" for job, label in enumerate(self.labels))

    def _repr_html_(self) -> str:
        return f"<table>{''.join(map(self._row, range(len(self.labels))))}</table>"

    def _row(self, job: int) -> str:
        last = self.last.get(job)
        share = 0.0 if last is None else last.done / max(1, last.total)
        cells = (escape(self.labels[job]), f'<progress value="{share:.3f}"></progress>', self._words(job))
        drawn = "".join(f'<td style="text-align:left">{cell}</td>' for cell in cells)
        return f"<tr>{drawn}</tr>"

    def _words(self, job: int) -> str:
        return escape(self.words(self.last[job])) if job in self.last else "waiting"
