"""Lines by epoch, which accuracy and loss share."""

from typing import Any

import altair as alt
import polars as pl

from spectrope.report.figures.base import Layer, colour, dash, emphasised, exact, rows
from spectrope.report.tables import Tables

SPLITS = {"train": "training examples", "test": "held-out examples"}
HEIGHT = 240


def history(tables: Tables, setting: str, split: str, quantity: str, y: alt.Y, unit: str) -> dict[str, Layer]:
    """One line per run of a setting, a point per evaluation, and with several seeds their mean.

    Values that are not finite are left out, and so are means to which a seed would not contribute.
    """
    wanted = tables.metrics.filter((pl.col("setting") == setting) & (pl.col("split") == split))
    values = rows(wanted.select("run", "encoding", "seed", "epoch", quantity), quantity)
    means = _means(wanted, quantity)
    shared = {
        "x": alt.X("epoch:Q", title="epoch", axis=alt.Axis(tickMinStep=1, format="d"), scale=_epochs(wanted)),
        "y": y,
        "color": colour(tables.encodings),
    }
    return _lines(tables, values, means, shared) | {"points": _points(values, shared, quantity, unit, means)}


def _lines(
    tables: Tables, values: list[dict[str, Any]], means: list[dict[str, Any]], shared: dict[str, Any]
) -> dict[str, Layer]:
    dashes = dash(tables.encodings)
    thin = alt.Chart().mark_line(strokeWidth=0.8 if means else 1.8)
    opacity = emphasised(0.4 if means else 1.0)
    lines = {"runs": Layer(values, thin.encode(**shared, strokeDash=dashes, detail="run:N", opacity=opacity))}
    if means:
        strong = alt.Chart().mark_line(strokeWidth=2.2)
        lines["means"] = Layer(means, strong.encode(**shared, strokeDash=dashes, opacity=emphasised()))
    return lines


def _points(
    values: list[dict[str, Any]],
    shared: dict[str, Any],
    quantity: str,
    unit: str,
    means: list[dict[str, Any]],
) -> Layer:
    tooltip = [
        alt.Tooltip("encoding:N"),
        alt.Tooltip("seed:Q", format="d"),
        alt.Tooltip("epoch:Q", format="d"),
        exact(quantity, f"{quantity}, {unit}", ".4~f"),
    ]
    dots = alt.Chart().mark_circle(size=10 if means else 22)
    return Layer(values, dots.encode(**shared, tooltip=tooltip, opacity=emphasised(0.5 if means else 1.0)))


def _means(wanted: pl.DataFrame, quantity: str) -> list[dict[str, Any]]:
    """The mean over seeds of each encoding and epoch, where there are several and all are finite."""
    seeds = wanted.group_by("encoding").agg(pl.col("seed").n_unique().alias("seeds"))
    if wanted.is_empty() or seeds["seeds"].max() == 1:
        return []
    means = wanted.group_by("encoding", "epoch").agg(pl.col(quantity).mean(), pl.len().alias("n"))
    whole = means.join(seeds, on="encoding").filter(pl.col("n") == pl.col("seeds"))
    return rows(whole.sort("encoding", "epoch").drop("n", "seeds"), quantity)


def _epochs(wanted: pl.DataFrame) -> alt.Scale:
    return alt.Scale(domain=[0, max([1, *wanted["epoch"].to_list()])], nice=False)
