"""What `spectrope grok` prints: a line per run while it trains, and tables at the end."""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import polars as pl
import torch
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from spectrope.console.terminal import console, frame, say, table
from spectrope.core.interrupt import stop_on_signal
from spectrope.grokking.run import grok_all
from spectrope.grokking.run_labels import scores_of
from spectrope.grokking.steps import GrokProgress
from spectrope.lab.experiments import StepExperiment
from spectrope.store import Run

SPARKS = "▁▂▃▄▅▆▇█"
SPARK_WIDTH = 12


class GrokLines:
    """A line per run: step, accuracies, MED, and test accuracy so far as a small plot.

    Where output is no terminal, a line when a run ends.

    Args:
        progress: Draws the lines.
        labels: One per run.
    """

    def __init__(self, progress: Progress, labels: Sequence[str]) -> None:
        self.progress, self.labels = progress, labels
        self.bars = [progress.add_task(label, total=1, state="", start=False) for label in labels]

    def watch(self, number: int, progress: GrokProgress) -> None:
        """Show where the run of that number stands."""
        bar, last = self.bars[number], progress.last
        if last is None:
            return
        values = {name: value or 0.0 for name, value in last.values.items()}
        course = [row.values["test_accuracy"] or 0.0 for row in progress.rows]
        state = (
            f"train {100 * values['train_accuracy']:.0f} %, test {100 * values['test_accuracy']:.0f} % "
            f"{spark(course)}"
        )
        if "med" in values:
            state += f" MED {values['med']:.3f}"
        self.progress.start_task(bar)
        self.progress.update(bar, completed=progress.step, total=progress.steps, state=state)
        if progress.over:
            self.progress.stop_task(bar)
            if not console.is_terminal:
                line = f"{self.labels[number]}: step {progress.step}, {state}"
                say(line)


def train_shown(plan: Sequence[StepExperiment], root: Path, device: torch.device) -> list[Run]:
    """Run what is not in the run folders yet with a line for each, then print the table of all."""
    with grok_lines([one.label for one in plan]) as lines, stop_on_signal() as stop:
        done = grok_all(plan, root, device, lines.watch, stop)
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
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        yield GrokLines(progress, labels)


def spark(shares: Sequence[float]) -> str:
    """Shares between 0 and 1 as a row of blocks, the whole course squeezed into a few."""
    places = np.linspace(0, len(shares) - 1, min(len(shares), SPARK_WIDTH)).round().astype(int)
    chosen = [shares[place] for place in places]
    return "".join(SPARKS[min(int(share * len(SPARKS)), len(SPARKS) - 1)] for share in chosen)


def show_grok(runs: Sequence[Run]) -> None:
    """Print scores of each run, in 80 columns."""
    title = "grokked at: the step since which test accuracy has been 99 %"
    rows = [scores_of(run) for run in runs]
    table(title, tuple(rows[0]), [tuple(row.values()) for row in rows], numeric=tuple(rows[0]))


def show_scores(scores: pl.DataFrame) -> None:
    """Print how measures trace and foresee test loss, in 80 columns."""
    title = "against test loss: rho, rank correlation; partial, given train loss; lead, steps"
    shown = {"measure": "measure", "rho": "rho", "rho_low": "low", "rho_high": "high"}
    shown |= {"partial": "partial", "lead": "lead"}
    whole = scores.fill_nan(None).with_columns(pl.col("lead").cast(pl.Float64).round().cast(pl.Int64))
    frame(title, whole.select(pl.col(old).alias(new) for old, new in shown.items()))
