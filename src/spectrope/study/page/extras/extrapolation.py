"""Claim 9: what longer sequences cost, against the largest gap and by length."""

from collections.abc import Mapping
from typing import Any

import altair as alt
import polars as pl

from spectrope.figures import Marks, Panel
from spectrope.study.claims.extrapolation import length_loss
from spectrope.study.page.extras.base import ACCURACY, EXTRAS, HEIGHT, Extra, arm_label, by_arm, cloud
from spectrope.study.quantities import Seen, gap, learned


def extrapolation_panels(seen: Mapping[str, Seen]) -> list[Panel]:
    """Loss on longer sequences against the largest gap, then accuracy by length."""
    loss = ("part of the accuracy lost on longer sequences, %", length_loss)
    return [*cloud("by run", seen, ("largest gap, points", gap()), loss), *by_length(seen)]


def by_length(seen: Mapping[str, Seen]) -> list[Panel]:
    """Held-out accuracy against the length tested at, mean over the runs that have learned the task."""
    x = alt.X("factor:Q", title="length tested at over length of training")
    line = alt.Chart().mark_line(point={"size": 24}).encode(x=x, y=alt.Y("accuracy:Q", **ACCURACY))
    panels = []
    for condition, runs in seen.items():
        if rows := _means(runs):
            layer = Marks(rows, line.encode(color=by_arm(runs.arms)))
            panels.append(Panel("by length", condition, {"means": layer}, HEIGHT))
    return panels


def _means(runs: Seen) -> list[dict[str, Any]]:
    """Accuracy in percent by arm and length."""
    tables = [
        row.tables["lengths"].select(pl.lit(arm_label(arm)).alias("arm"), "factor", "accuracy")
        for (arm, _), row in runs.rows.items()
        if "lengths" in row.tables and learned(row)
    ]
    if not tables:
        return []
    means = pl.concat(tables).group_by("arm", "factor").mean().sort("arm", "factor")
    return means.with_columns(pl.col("accuracy") * 100).to_dicts()


EXTRAS.register(
    "extrapolation",
    Extra(
        "Above, a point per run; below, accuracy by length, mean over the runs that learned the task.",
        extrapolation_panels,
    ),
)
