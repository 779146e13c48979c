"""Final accuracy against the ceiling."""

from typing import Any

import altair as alt
import polars as pl

from spectrope.figures.base import Figure, Marks, Panel, colour, emphasised, exact
from spectrope.figures.kinds.curves import ceiling
from spectrope.figures.summary import mean_interval
from spectrope.figures.tables import Tables


class Accuracy(Figure, name="accuracy"):
    """Held-out accuracy of each encoding beside the Bayes accuracy."""

    title = "Held-out accuracy"
    place = 10
    needs = "runs"

    def panels(self, tables: Tables) -> list[Panel]:
        """A panel per setting."""
        return [
            Panel("", setting, self._layers(tables, part), 30 + 22 * part["encoding"].n_unique())
            for setting in tables.settings
            if not (part := tables.runs.filter(pl.col("setting") == setting)).is_empty()
        ]

    def caption(self, tables: Tables) -> str:
        """How to read it."""
        text = "Filled: held-out examples; hollow: training examples; dashed: best possible accuracy."
        if len(tables.seeds) == 1:
            return text
        return (
            f"{text} Points are seeds; bars are 95 % t intervals of the mean of the "
            "held-out accuracy, cut at 0 and 100 %."
        )

    def _layers(self, tables: Tables, part: pl.DataFrame) -> dict[str, Marks]:
        order = [name for name in tables.encodings if name in set(part["encoding"])]
        shared = {
            "y": alt.Y("encoding:N", title=None, sort=order, scale=alt.Scale(domain=order)),
            "color": colour(tables.encodings),
        }
        values = part.select("encoding", "seed", "train", "test").to_dicts()
        hollow = alt.Chart().mark_point(size=36, strokeWidth=1.4)
        filled = alt.Chart().mark_point(size=60, filled=True)
        return {
            "ceiling": ceiling(tables, part["setting"][0], "x"),
            "intervals": _intervals(part, shared),
            "training": Marks(values, _placed(hollow, "train", "training, %", shared)),
            "held_out": Marks(values, _placed(filled, "test", "held-out, %", shared)),
        }


def _placed(dots: alt.Chart, quantity: str, title: str, shared: dict[str, Any]) -> alt.Chart:
    tooltip = [alt.Tooltip("encoding:N"), alt.Tooltip("seed:Q", format="d"), exact(quantity, title)]
    x = alt.X(f"{quantity}:Q", title="accuracy, %", scale=alt.Scale(domain=[0, 100]))
    return dots.encode(**shared, x=x, tooltip=tooltip, opacity=emphasised(0.85))


def _intervals(part: pl.DataFrame, shared: dict[str, Any]) -> Marks:
    intervals = {
        name: mean_interval(values["test"].to_list()) for (name,), values in part.group_by("encoding")
    }
    values = [
        {
            "encoding": name,
            "low": max(0.0, interval.low),
            "high": min(100.0, interval.high),
            "mean": interval.estimate,
        }
        for name, interval in intervals.items()
        if interval is not None
    ]
    tooltip = [
        alt.Tooltip("encoding:N"),
        exact("mean", "mean, %"),
        exact("low", "from, %"),
        exact("high", "to, %"),
    ]
    bars = alt.Chart().mark_rule(strokeWidth=5, strokeCap="round", opacity=0.3)
    return Marks(values, bars.encode(**shared, x="low:Q", x2="high:Q", tooltip=tooltip))
