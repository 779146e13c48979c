"""Draw docs/images/position-share.svg: accuracy against the share of questions about position, at `mini`.

    python -m tools.position_share --workers 2 --seeds 3

Task `mixed` asks for a distance with a probability from 0 to 1, and otherwise which word of a set occurs.
Finished runs are read from `runs/position-share`, so that an interrupted call goes on where it was. Heads are
not ablated. The scores behind the figure are written beside it, as docs/images/position-share.csv.
"""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np
import polars as pl

import spectrope as sp
from spectrope.figures import QUIET, Marks, Panel, colour, exact, panels_spec, write_spec
from spectrope.lab import COMPARED, SCALES, Experiment, Job, experiment, read_experiment
from spectrope.stats import t_interval
from spectrope.store import Run

SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
DRAWN = Path("docs/images/position-share.svg")
WIDTH, HEIGHT = 420, 260


def plan(
    encodings: Sequence[str], shares: Sequence[float], seeds: int, epochs: int | None = None
) -> list[Experiment]:
    """A run per share, seed and encoding; of as many epochs as asked for, otherwise as `mini` has it."""
    task = SCALES["mini"]["mixed"].task
    return [
        experiment(replace(task, position_share=share), name, seed=seed, epochs=epochs)  # pyright: ignore[reportCallIssue]
        for share in shares
        for seed in range(seeds)
        for name in encodings
    ]


def scores(runs: Sequence[Run]) -> pl.DataFrame:
    """Accuracies of finished runs in percent, with the best one possible from content alone."""
    return pl.DataFrame([_score(run) for run in runs]).sort("encoding", "position_share", "seed")


def _score(run: Run) -> dict[str, Any]:
    one = read_experiment(run.config)
    assert isinstance(one, Experiment)
    shuffled = replace(one.task, cue="content").build()  # pyright: ignore[reportCallIssue]
    return {
        "encoding": one.encoding_name,
        "position_share": run.config["task"]["position_share"],
        "seed": one.seed,
        "epochs": one.training.epochs,
        "train": 100 * run.manifest["train_accuracy"],
        "test": 100 * run.manifest["test_accuracy"],
        "content_only": 100 * shuffled.bayes_accuracy(),
        "run": run.id,
    }


def panel(frame: pl.DataFrame) -> Panel:
    """A line per encoding with intervals over seeds, above the ceiling of content alone."""
    order = list(dict.fromkeys(frame["encoding"]))
    means = [
        {"encoding": name, "position_share": share, **_interval(part["test"].to_numpy())}
        for (name, share), part in frame.group_by("encoding", "position_share", maintain_order=True)
    ]
    ceiling = frame.unique("position_share").sort("position_share").to_dicts()
    x = alt.X("position_share:Q", title="share of questions about position")
    scale = alt.Scale(domain=[0, 100])
    y = alt.Y("estimate:Q", title="held-out accuracy, %", scale=scale)
    names = [alt.Tooltip("encoding:N"), alt.Tooltip("position_share:Q")]
    tooltip = [*names, exact("estimate", "%"), exact("low", "from"), exact("high", "to")]
    line = alt.Chart().mark_line(point=True, strokeWidth=1.6)
    bar = alt.Chart().mark_rule(strokeWidth=1.2, opacity=0.5)
    bound = alt.Chart().mark_line(color=QUIET, strokeDash=[4, 3])
    layers = {
        "content": Marks(ceiling, bound.encode(x=x, y=alt.Y("content_only:Q", scale=scale))),
        "intervals": Marks(means, bar.encode(x=x, y="low:Q", y2="high:Q", color=colour(order))),
        "means": Marks(means, line.encode(x=x, y=y, color=colour(order), tooltip=tooltip)),
    }
    return Panel("", "dashed: best possible from content alone", layers, HEIGHT)


def _interval(values: np.ndarray) -> dict[str, float]:
    """Mean over seeds with its t interval, or a single value."""
    if len(values) == 1:
        return dict.fromkeys(("estimate", "low", "high"), float(values[0]))
    found = t_interval(values)
    return {"estimate": found.estimate, "low": max(0.0, found.low), "high": min(100.0, found.high)}


def main() -> None:
    """Train what is not trained yet, draw the figure and write the scores."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=Path, default=Path("runs/position-share"))
    parser.add_argument("--encodings", nargs="+", default=COMPARED)
    parser.add_argument("--shares", nargs="+", type=float, default=SHARES)
    parser.add_argument("--epochs", type=int, help="of each run (default: the scale's)")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=DRAWN)
    chosen = parser.parse_args()
    jobs = [Job(one, ()) for one in plan(chosen.encodings, chosen.shares, chosen.seeds, chosen.epochs)]
    frame = scores(sp.execute(jobs, root=chosen.runs, workers=chosen.workers))
    frame.write_csv(chosen.out.with_suffix(".csv"), float_precision=4)
    rounded = pl.read_csv(chosen.out.with_suffix(".csv"))  # The figure shows the scores that are written.
    write_spec(panels_spec([panel(rounded)], WIDTH, 1), chosen.out)


if __name__ == "__main__":
    main()
