"""Lines by epoch, which accuracy and loss share."""

from collections.abc import Iterator
from itertools import count
from typing import Any

import altair as alt
import polars as pl

from spectrope.figures.base import Marks, colour, dash, emphasised, exact, rows
from spectrope.figures.tables import Tables

SPLITS = {"train": "training examples", "test": "held-out examples"}
HEIGHT = 240
MOST_TICKS = 8  # Steps of the epoch axis, few enough for a narrow page.


def history(tables: Tables, setting: str, split: str, quantity: str, y: alt.Y, unit: str) -> dict[str, Marks]:
    """One line per run of a setting, a point per evaluation, and with several seeds their mean.

    Values that are not finite are left out, and so are means to which a seed would not contribute.
    """
    wanted = tables.metrics.filter((pl.col("setting") == setting) & (pl.col("split") == split))
    values = rows(wanted.select("encoding", "seed", "epoch", quantity), quantity)
    means = _means(wanted, quantity)
    last = max([1, *wanted["epoch"].to_list()])
    shared = {
        "x": _epochs(last),
        "y": y,
        "color": colour(tables.encodings),
        "strokeDash": dash(tables.encodings),
    }
    value = exact(quantity, f"{quantity}, {unit}", ".4~f")
    size = max(6.0, min(22.0, 260 / last))
    if not means:
        return {"runs": _lines(values, shared, 1.8, 1.0), "points": _points(values, shared, value, size, 1.0)}
    return {
        "runs": _lines(values, shared, 0.8, 0.4),
        "means": _lines(means, shared, 2.2, 1.0),
        "points": _points(values, shared, value, size / 2, 0.5),
    }


def _lines(values: list[dict[str, Any]], shared: dict[str, Any], width: float, opacity: float) -> Marks:
    line = alt.Chart().mark_line(strokeWidth=width)
    return Marks(values, line.encode(**shared, detail="seed:N", opacity=emphasised(opacity)))


def _points(
    values: list[dict[str, Any]], shared: dict[str, Any], value: alt.Tooltip, size: float, opacity: float
) -> Marks:
    whole = [alt.Tooltip(f"{name}:Q", format="d") for name in ("seed", "epoch")]
    tooltip = [alt.Tooltip("encoding:N"), *whole, value]
    place = {name: shared[name] for name in ("x", "y", "color")}
    dots = alt.Chart().mark_circle(size=size)
    return Marks(values, dots.encode(**place, tooltip=tooltip, opacity=emphasised(opacity)))


def _means(wanted: pl.DataFrame, quantity: str) -> list[dict[str, Any]]:
    """The mean over seeds of each encoding and epoch, where there are several and all are finite."""
    seeds = wanted.group_by("encoding").agg(pl.col("seed").n_unique().alias("seeds"))
    if max([1, *seeds["seeds"].to_list()]) == 1:
        return []
    means = wanted.group_by("encoding", "epoch").agg(pl.col(quantity).mean(), pl.len().alias("n"))
    whole = means.join(seeds, on="encoding").filter(pl.col("n") == pl.col("seeds"))
    return rows(whole.sort("encoding", "epoch").drop("n", "seeds"), quantity)


def _epochs(last: int) -> alt.X:
    """An axis from 0 to the last epoch, with ticks at round epochs alone."""
    step = next(step for step in _round_numbers() if last <= MOST_TICKS * step)
    axis = alt.Axis(values=list(range(0, last + 1, step)), format="d")
    return alt.X("epoch:Q", title="epoch", axis=axis, scale=alt.Scale(domain=[0, last], nice=False))


def _round_numbers() -> Iterator[int]:
    return (digit * 10**power for power in count() for digit in (1, 2, 5))
