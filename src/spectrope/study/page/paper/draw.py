"""Panels of the paper's figures: curves, drops by head, accuracy against the number of heads with RoPE."""

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import numpy as np
import polars as pl

from spectrope.figures import INK, QUIET, Marks, Panel, exact, outlines, styles
from spectrope.stats import t_interval
from spectrope.study.page.paper.arms import TASKS, CaseRuns, PaperRuns
from spectrope.study.rows import StudyRow

HEIGHT = 190
POINTS_WIDTH = 0.6  # Of the row of heads, as a share of the distance between layers.
INTERVALS = "95 % t intervals, cut at 0 and 100 %"
SPLITS = {"train": "training", "test": "held out"}


def curves(runs: PaperRuns, task: str, encodings: Sequence[str]) -> list[Panel]:
    """Accuracy by epoch, a line per encoding and a panel per split, as means over seeds."""
    found = {name: runs.found(task, name, "metrics") for name in encodings}
    frames = [
        row.tables["metrics"].select("epoch", "split", "accuracy").with_columns(encoding=pl.lit(name))
        for name, case in found.items()
        for row in case.rows
    ]
    if not frames:
        return []
    counted = [_noted(name, case) for name, case in found.items() if case.rows]
    group = f"Means over seeds: {', '.join(counted)}"
    means = (
        pl.concat(frames)
        .group_by("encoding", "split", "epoch")
        .agg(pl.col("accuracy").mean() * 100, pl.len().alias("seeds"))
    )
    present = [name for name in encodings if name in set(means["encoding"])]
    looks = styles(present)
    colour = alt.Scale(domain=present, range=[looks[name].colour for name in present])
    line = (
        alt.Chart()
        .mark_line(strokeWidth=1.5)
        .encode(
            x=alt.X("epoch:Q", title="epoch", axis=alt.Axis(tickMinStep=1)),
            y=alt.Y("accuracy:Q", title="accuracy, %", scale=alt.Scale(domain=[0, 100])),
            color=alt.Color("encoding:N", scale=colour, title=None, legend=alt.Legend(orient="right")),
            tooltip=["encoding:N", alt.Tooltip("epoch:Q"), exact("accuracy", "%"), alt.Tooltip("seeds:Q")],
        )
    )
    return [
        Panel(group, SPLITS[split], {"lines": Marks(part.sort("encoding", "epoch").to_dicts(), line)}, HEIGHT)
        for split in SPLITS
        if not (part := means.filter(pl.col("split") == split)).is_empty()
    ]


def drops(runs: PaperRuns, cases: Sequence[tuple[str, str]]) -> list[Panel]:
    """Drop of accuracy by layer, a point per head and seed, a panel per encoding and task."""
    return [
        _drops(f"{encoding}, {TASKS[task]}", found)
        for task, encoding in cases
        if (found := runs.found(task, encoding, "ablation")).rows
    ]


def _drops(title: str, found: CaseRuns) -> Panel:
    table = pl.concat([_heads(one) for one in found.rows])
    layers, n_heads = sorted(table["layer"].unique()), table["head"].n_unique()
    ticks = alt.Axis(values=layers, format="d", ticks=False)
    scale = alt.Scale(domain=[-0.5, int(layers[-1]) + 0.5], nice=False)
    x = alt.X("x:Q", title="layer", axis=ticks, scale=scale)
    y = alt.Y("drop:Q", title="drop, points")
    beside = ((pl.col("head") + 0.5) / n_heads - 0.5) * POINTS_WIDTH
    rows = table.with_columns(x=pl.col("layer") + beside).to_dicts()
    tooltip = [alt.Tooltip(f"{name}:Q") for name in ("seed", "layer", "head")] + [exact("drop", "drop")]
    marks = alt.Chart().mark_circle(size=22, opacity=0.65, color=INK)
    area = alt.Chart().mark_area(orient="horizontal", color=QUIET, fillOpacity=0.3, line=False)
    zero = alt.Chart().mark_rule(color=QUIET, strokeWidth=0.8)
    layered = {
        "zero": Marks([{"drop": 0}], zero.encode(y=y)),
        "outlines": Marks(outlines(table), area.encode(x=x, y=y, x2="x2:Q", detail="layer:N")),
        "heads": Marks(rows, marks.encode(x=x, y=y, tooltip=tooltip)),
    }
    return Panel("", _noted(title, found), layered, HEIGHT)


def _noted(title: str, found: CaseRuns) -> str:
    words = [f"{len(found.rows)} seed{'s' if len(found.rows) > 1 else ''}", found.note]
    return f"{title} ({', '.join(filter(None, words))})"


def _heads(row: StudyRow) -> pl.DataFrame:
    table = row.tables["ablation"].select("layer", "head", "drop")
    return table.with_columns(seed=pl.lit(row.experiment.seed))


def head_lines(runs: PaperRuns, printed: Mapping[int, float]) -> list[Panel]:
    """Drop by number of the head, a line per layer, a panel per number of heads with RoPE; first seeds.

    Args:
        runs: What there is.
        printed: Share of heads with RoPE by the number of the figure that shows it.
    """
    by_heads = runs.by_heads()
    whole = max(by_heads)
    some = [k for k in by_heads if 0 < k < whole]
    nearest = {number: min(some, key=lambda k: abs(k / whole - share)) for number, share in printed.items()}
    panels = []
    for k in some:
        found = runs.found("distance", by_heads[k], "ablation")
        numbers = [f"{number}" for number, other in nearest.items() if other == k]
        if found.rows:
            panels.append(_head_lines(f"RoPE on {k} of {whole} heads", numbers, found))
    return panels


def _head_lines(title: str, numbers: Sequence[str], found: CaseRuns) -> Panel:
    line = (
        alt.Chart()
        .mark_line(point=True, strokeWidth=1.3)
        .encode(
            x=alt.X("head:Q", title="head", axis=alt.Axis(tickMinStep=1)),
            y=alt.Y("drop:Q", title="drop, points"),
            color=alt.Color("layer:O", scale=alt.Scale(scheme="viridis"), legend=alt.Legend(orient="right")),
            tooltip=[alt.Tooltip("layer:Q"), alt.Tooltip("head:Q"), exact("drop", "drop")],
        )
    )
    figures = f"figure{'s' * (len(numbers) > 1)} {' and '.join(numbers)}" if numbers else ""
    seed = f"seed {found.rows[0].experiment.seed}"
    words = ", ".join(filter(None, (figures, seed, found.note)))
    return Panel("", f"{title} ({words})", {"lines": Marks(_heads(found.rows[0]).to_dicts(), line)}, HEIGHT)


def by_heads(runs: PaperRuns) -> list[Panel]:
    """Held-out accuracy against the number of heads with RoPE, a panel per task."""
    panels = []
    for task, title in TASKS.items():
        rows = [
            {"k": k, **accuracy}
            for k, encoding in runs.by_heads().items()
            if (accuracy := accuracies(runs.found(task, encoding, "metrics")))
        ]
        if len(rows) > 2:  # More than the two ends, which are no partial RoPE.
            panels.append(Panel("", f"{title}; {_seeds_of(rows)}", _against_heads(rows), HEIGHT))
    return panels


def _seeds_of(rows: Sequence[Mapping[str, Any]]) -> str:
    """How many seeds the points have, and how their runs differ from the requested ones, in words."""
    counts = sorted({row["seeds"] for row in rows})
    number = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    notes = sorted({row["note"] for row in rows if row["note"]})
    return "; ".join((f"means over {number} seeds", INTERVALS, *notes))


def _against_heads(rows: list[dict[str, Any]]) -> dict[str, Marks]:
    x = alt.X("k:Q", title="heads with RoPE", axis=alt.Axis(tickMinStep=1))
    scale = alt.Scale(domain=[0, 100])
    y = alt.Y("estimate:Q", title="held-out accuracy, %", scale=scale)
    tooltip = [alt.Tooltip("k:Q"), exact("estimate", "%"), exact("low", "from"), exact("high", "to")]
    line = alt.Chart().mark_line(point=True, color=INK).encode(x=x, y=y, tooltip=tooltip)
    low = alt.Y("low:Q", title="held-out accuracy, %", scale=scale)
    bars = alt.Chart().mark_rule(color=QUIET).encode(x=x, y=low, y2="high:Q")
    return {"intervals": Marks(rows, bars), "means": Marks(rows, line)}


def bars(runs: PaperRuns, cases: Sequence[tuple[str, str]]) -> list[Panel]:
    """Held-out accuracy of some encodings and tasks as bars with intervals over seeds."""
    rows = [
        {"case": _noted(f"{encoding}, {TASKS[task]}", found), **accuracies(found)}
        for task, encoding in cases
        if (found := runs.found(task, encoding, "metrics")).rows
    ]
    if not rows:
        return []
    x = alt.X("case:N", title=None, axis=alt.Axis(labelAngle=0), sort=None)
    scale = alt.Scale(domain=[0, 100])
    y = alt.Y("estimate:Q", title="held-out accuracy, %", scale=scale)
    tooltip = ["case:N", exact("estimate", "%"), exact("low", "from"), exact("high", "to")]
    bar = alt.Chart().mark_bar(color=QUIET, width=28).encode(x=x, y=y, tooltip=tooltip)
    low = alt.Y("low:Q", title="held-out accuracy, %", scale=scale)
    rule = alt.Chart().mark_rule(color=INK).encode(x=x, y=low, y2="high:Q")
    return [
        Panel(
            "", f"accuracy; {INTERVALS}", {"bars": Marks(rows, bar), "intervals": Marks(rows, rule)}, HEIGHT
        )
    ]


def accuracies(found: CaseRuns) -> dict[str, Any]:
    """Mean held-out accuracy in percent with its t interval over seeds, cut at 0 and 100 %; no interval for
    one seed; the number of seeds, and how the runs differ; empty without rows."""
    values = np.array([100 * row.facts["test_accuracy"] for row in found.rows])
    if len(values) == 0:
        return {}
    told = {"seeds": len(values), "note": found.note}
    if len(values) == 1:
        return {"estimate": values[0], "low": None, "high": None, **told}
    interval = t_interval(values)
    ends = {"low": max(0.0, interval.low), "high": min(100.0, interval.high)}
    return {"estimate": interval.estimate, **ends, **told}
