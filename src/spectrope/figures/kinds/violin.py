"""Drops of each layer, as distributions over heads."""

from typing import Any

import altair as alt
import numpy as np
import polars as pl
from jaxtyping import Float
from scipy import stats

from spectrope.figures.base import Figure, Marks, Panel, exact, rows, span
from spectrope.figures.names import styles
from spectrope.figures.tables import Tables

HEIGHT = 150
HALF_WIDTH = 0.42  # Of an outline, as a share of the distance between layers.
POINTS_WIDTH = 0.6  # Of the row of heads, likewise.
ENDS = ("drop", "low", "high")
FEWEST = 3  # Heads of which a density is drawn.


class Violin(Figure, name="violin"):
    """The distribution over heads of the drops of each layer (Figure 4 of arXiv 2505.13027)."""

    title = "Drops of each layer"
    place = 21
    needs = "ablation"
    width = 200
    columns = 4

    def panels(self, tables: Tables) -> list[Panel]:
        """A panel per setting and encoding; the panels of a setting share their axes."""
        colours = {name: style.colour for name, style in styles(tables.encodings).items()}
        groups = tables.ablation.partition_by("setting", "encoding", as_dict=True)
        return [
            Panel(setting, encoding, _layers(part, _axes(tables, setting), colours[encoding]), HEIGHT)
            for setting in tables.settings
            for encoding in tables.encodings
            if (part := groups.get((setting, encoding))) is not None
        ]

    def caption(self, tables: Tables) -> str:
        """How to read it."""
        text = (
            "Every point is a head, from left to right by number, with the 95 % interval of its drop over "
            "examples; outlines are kernel densities over heads"
        )
        return f"{text}." if len(tables.seeds) == 1 else f"{text}, all seeds together."


def outlines(part: pl.DataFrame) -> list[dict[str, Any]]:
    """Kernel densities of the drops of each layer: rows of layer, drop, left end x and right end x2.

    A layer with fewer than `FEWEST` heads, or whose drops are all alike, has none.
    """
    points = []
    for (layer,), heads in sorted(part.partition_by("layer", as_dict=True).items()):
        drops = np.array([row["drop"] for row in rows(heads, "drop")], dtype=float)
        if len(drops) < FEWEST or np.ptp(drops) < 1e-9:
            continue
        grid, density = kernel_density(drops)
        ends = [(round(at, 4), round(HALF_WIDTH * wide, 4)) for at, wide in zip(grid, density, strict=True)]
        points += [{"layer": layer, "drop": at, "x": layer - wide, "x2": layer + wide} for at, wide in ends]
    return points


def kernel_density(
    values: Float[np.ndarray, " n"],
) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, " m"]]:
    """Gaussian kernel density from the least to the greatest value, scaled to 1 at its highest.

    The bandwidth is Silverman's, :math:`0.9 \\min(s, \\mathrm{IQR}/1.349)\\, n^{-1/5}`, so that one head far
    from the others does not smear them out. The grid is finer where values are dense.

    Returns:
        Grid, in the unit of the values, and density at it.
    """
    spread = float(values.std(ddof=1))
    robust = float(stats.iqr(values)) / 1.349
    width = 0.9 * min(spread, robust or spread) * len(values) ** -0.2
    dense = np.quantile(values, np.linspace(0, 1, 17))[:, None] + width * np.linspace(-2, 2, 5)
    even = np.linspace(values.min(), values.max(), 33)
    grid = np.unique(np.clip(np.concatenate([even, dense.ravel()]), values.min(), values.max()))
    density = stats.gaussian_kde(values, bw_method=width / spread)(grid)
    return grid, density / density.max()


def _axes(tables: Tables, setting: str) -> dict[str, Any]:
    heads = rows(tables.ablation.filter(pl.col("setting") == setting), *ENDS)
    last = max([0, *(row["layer"] for row in heads)])
    ticks = alt.Axis(values=list(range(last + 1)), format="d", ticks=False, domain=False)
    drops = alt.Scale(domain=span([row[end] for row in heads for end in ENDS], 1.0), nice=False)
    layers = alt.Scale(domain=[-0.5, last + 0.5], nice=False)
    return {
        "x": alt.X("x:Q", title="layer", axis=ticks, scale=layers),
        "y": alt.Y("drop:Q", title="drop, points", scale=drops),
        "low": alt.Y("low:Q", title="drop, points", scale=drops),
    }


def _layers(part: pl.DataFrame, axes: dict[str, Any], colour: str) -> dict[str, Marks]:
    place = {"x": axes["x"], "y": axes["y"]}
    zero = alt.Chart().mark_rule(color="#8c8c8c", strokeWidth=0.8)
    area = alt.Chart().mark_area(
        orient="horizontal", color=colour, fillOpacity=0.22, line=False, stroke=colour
    )
    placed = [row | {"x": round(_place(row, part), 4)} for row in rows(part.drop("run", "setting"), *ENDS)]
    crowd = len(part) / part["layer"].n_unique()
    dots = alt.Chart().mark_circle(size=max(6, min(18, 300 / crowd)), opacity=0.9, color=colour)
    whole = [alt.Tooltip(f"{name}:Q", format="d") for name in ("seed", "layer", "head")]
    drops = [exact("drop", "drop, points"), exact("low", "from"), exact("high", "to")]
    tooltip = [alt.Tooltip("encoding:N"), *whole, *drops]
    bars = alt.Chart().mark_rule(strokeWidth=0.8, opacity=0.55, color=colour)
    return {
        "zero": Marks([{"drop": 0}], zero.encode(y=axes["y"])),
        "outlines": Marks(outlines(part), area.encode(**place, x2="x2:Q", detail="layer:N")),
        "intervals": Marks(placed, bars.encode(x=axes["x"], y=axes["low"], y2="high:Q")),
        "heads": Marks(placed, dots.encode(**place, tooltip=tooltip)),
    }


def _place(row: dict[str, Any], part: pl.DataFrame) -> float:
    share = (row["head"] + 0.5) / (1 + max(part["head"].to_list()))
    return row["layer"] + POINTS_WIDTH * (share - 0.5)
