"""Terminal output of `spectrope grok`: a line per run during training, and tables at the end."""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Display

from spectrope.console import EngineOptions, console, frame, say, table
from spectrope.core import Progress
from spectrope.grokking.run_labels import scores_of, threshold
from spectrope.lab import AnyExperiment, Job, execute
from spectrope.store import Run

SPARKS = "▁▂▃▄▅▆▇█"
SPARK_WIDTH = 12


class GrokLines:
    """A line per run: step, accuracies, MED, and test accuracy so far as a small plot.

    Where output is no terminal, a line when a run ends.

    Args:
        display: Draws the lines.
        labels: One per run.
    """

    def __init__(self, display: Display, labels: Sequence[str]) -> None:
        self.display, self.labels = display, labels
        self.states: dict[int, str] = {}
        self.bars = [display.add_task(label, total=1, state="", start=False) for label in labels]

    def watch(self, progress: Progress) -> None:
        """Show the progress of a run in its line."""
        bar = self.bars[progress.job]
        if progress.stage == "done":
            self._end(progress.job)
        elif progress.evaluations:
            self.states[progress.job] = f"step {progress.done}, {state_of(progress)}"
            self.display.start_task(bar)
            self.display.update(bar, completed=progress.done, total=progress.total, state=state_of(progress))

    def _end(self, number: int) -> None:
        self.display.stop_task(self.bars[number])
        if number in self.states and not console.is_terminal:
            say(f"{self.labels[number]}: {self.states[number]}")


def state_of(progress: Progress) -> str:
    """Accuracies, the course of test accuracy as a small plot, and MED, in a few words."""
    values = {name: value or 0.0 for name, value in progress.evaluations[-1].items()}
    course = [row["test_accuracy"] or 0.0 for row in progress.evaluations]
    state = (
        f"train {100 * values['train_accuracy']:.0f} %, test {100 * values['test_accuracy']:.0f} % "
        f"{spark(course)}"
    )
    return f"{state} MED {values['med']:.3f}" if "med" in values else state


def train_shown(plan: Sequence[AnyExperiment], root: Path, where: EngineOptions) -> list[Run]:
    """Run what is not in the run folders yet with a line for each, then print the table of all."""
    with grok_lines([one.label for one in plan]) as lines:
        done = execute([Job(one, tables=()) for one in plan], root, watch=lines.watch, **where.arguments())
    show_grok(done)
    return done


@contextlib.contextmanager
def grok_lines(labels: Sequence[str]) -> Iterator[GrokLines]:
    """Progress lines for the runs of these labels while the block runs."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=10),
        TextColumn("{task.completed} of {task.total}"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[state]}"),
    )
    with Display(*columns, console=console, disable=not console.is_terminal) as display:
        yield GrokLines(display, labels)


def spark(shares: Sequence[float]) -> str:
    """Draw values between 0 and 1 as a sparkline of block characters, compressed to a few columns."""
    places = np.linspace(0, len(shares) - 1, min(len(shares), SPARK_WIDTH)).round().astype(int)
    chosen = [shares[place] for place in places]
    return "".join(SPARKS[min(int(share * len(SPARKS)), len(SPARKS) - 1)] for share in chosen)


def show_grok(runs: Sequence[Run]) -> None:
    """Print scores of each run, in 80 columns."""
    title = f"grokked at: the step from which test accuracy is at least {threshold(runs[0].config)}"
    rows = [scores_of(run) for run in runs]
    table(title, tuple(rows[0]), [tuple(row.values()) for row in rows], numeric=tuple(rows[0]))


def records(runs: Sequence[Run]) -> dict[str, Any]:
    """Id, folder, configuration and manifest of each run, as JSON-ready values."""
    return {
        "runs": [
            {"run": run.id, "path": str(run.path), "config": run.config, "manifest": run.manifest}
            for run in runs
        ]
    }


def show_scores(scores: pl.DataFrame) -> None:
    """Print how measures trace and foresee test loss, in 80 columns."""
    title = "against test loss: rho, rank correlation; partial, given train loss; lead, steps"
    shown = {"measure": "measure", "rho": "rho", "rho_low": "low", "rho_high": "high"}
    shown |= {"partial": "partial", "lead": "lead"}
    whole = scores.fill_nan(None).with_columns(pl.col("lead").cast(pl.Float64).round().cast(pl.Int64))
    frame(title, whole.select(pl.col(old).alias(new) for old, new in shown.items()))
