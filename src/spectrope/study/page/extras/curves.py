"""Claims 1 and 2: learning curves of the encodings, as the paper's figures 2 and 3."""

from collections.abc import Mapping
from typing import Any

import altair as alt
import polars as pl

from spectrope.figures import Marks, Panel, styles
from spectrope.study.arms import NAMES
from spectrope.study.page.extras.base import ACCURACY, EXTRAS, Extra
from spectrope.study.quantities import Seen

SPLITS = {"train": "training", "test": "held-out"}


def curves(seen: Mapping[str, Seen]) -> list[Panel]:
    """Accuracy by epoch, mean over seeds: a panel per split and condition."""
    colours = [style.colour for style in styles(list(NAMES)).values()]
    chart = (
        alt.Chart()
        .mark_line(point={"size": 16})
        .encode(
            x=alt.X("epoch:Q", axis=alt.Axis(tickMinStep=1)),
            y=alt.Y("accuracy:Q", **ACCURACY),
            color=alt.Color(
                "encoding:N", title=None, scale=alt.Scale(domain=list(NAMES.values()), range=colours)
            ),
        )
    )
    return [
        Panel(label, condition, {"curves": Marks(rows, chart)}, 180)
        for split, label in SPLITS.items()
        for condition, runs in seen.items()
        if (rows := [row for arm in NAMES for row in _curve(runs, arm, split)])
    ]


def _curve(runs: Seen, arm: str, split: str) -> list[dict[str, Any]]:
    """The mean curve of one encoding, in percent."""
    tables = [
        row.tables["metrics"].filter(pl.col("split") == split).select("epoch", "accuracy")
        for (name, _), row in runs.rows.items()
        if name == arm and "metrics" in row.tables
    ]
    if not tables:
        return []
    means = pl.concat(tables).group_by("epoch").mean().sort("epoch")
    return [
        {"encoding": NAMES[arm], "epoch": epoch, "accuracy": 100 * accuracy}
        for epoch, accuracy in means.iter_rows()
    ]


for claim in ("distance-ordering", "counting-biases"):
    EXTRAS.register(claim, Extra("Accuracy by epoch, mean over seeds.", curves, width=220))
