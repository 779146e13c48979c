"""Cumulative drop as heads are silenced one after another."""

from typing import Any

import altair as alt
import polars as pl

from spectrope.figures.base import Figure, Marks, Panel, colour, dash, emphasised, exact, rows, span
from spectrope.figures.kinds.measured import by_setting
from spectrope.figures.tables import Tables

HEIGHT = 240
ENDS = ("drop", "drop_low", "drop_high")


class CumulativeCurve(Figure, name="cumulative"):
    """The drop as heads are silenced one after the other, strongest first."""

    title = "Drop as heads are silenced cumulatively"
    place = 24
    needs = "cumulative"
    key = "encodings"

    def panels(self, tables: Tables) -> list[Panel]:
        """A panel per setting with a curve per run."""
        return by_setting(tables, tables.cumulative, lambda part: _layers(tables, part), HEIGHT)

    def caption(self, tables: Tables) -> str:
        """How to read it."""
        text = (
            "Held-out accuracy lost when the heads with the largest single drops are silenced together; the "
            "order comes from one half of the examples, the curve with its 95 % intervals from the other. "
            "Hovering over a step shows its head and the drop when only that head is silenced."
        )
        return text if len(tables.seeds) == 1 else f"{text} Each seed has a curve."


def _layers(tables: Tables, part: pl.DataFrame) -> dict[str, Marks]:
    named = part.with_columns(name=pl.format("{}.{}", "layer", "head")).drop("run", "setting")
    values = rows(named.sort("encoding", "seed", "n_changed"), *ENDS)
    scale = alt.Scale(domain=span([row[end] for row in values for end in ENDS], 1.0), nice=False)
    x = alt.X("n_changed:Q", title="heads silenced", axis=alt.Axis(format="d", tickMinStep=1))
    drop, low = (alt.Y(f"{end}:Q", title="drop, points", scale=scale) for end in ("drop", "drop_low"))
    shared: dict[str, Any] = {"x": x, "color": colour(tables.encodings), "detail": "seed:N"}
    lines, bars = alt.Chart().mark_line(strokeWidth=1.6), alt.Chart().mark_rule(strokeWidth=1)
    dots = alt.Chart().mark_circle(size=22)
    return {
        "lines": Marks(
            values,
            lines.encode(**shared, y=drop, strokeDash=dash(tables.encodings), opacity=emphasised(0.9)),
        ),
        "intervals": Marks(values, bars.encode(**shared, y=low, y2="drop_high:Q", opacity=emphasised(0.6))),
        "heads": Marks(values, dots.encode(**shared, y=drop, tooltip=_tooltip(), opacity=emphasised())),
    }


def _tooltip() -> list[alt.Tooltip]:
    numbers = [exact("single", "alone, points"), exact("drop", "with those before, points")]
    return [
        alt.Tooltip("encoding:N"),
        alt.Tooltip("seed:Q", format="d"),
        alt.Tooltip("name:N", title="head"),
        *numbers,
        exact("drop_low", "from"),
        exact("drop_high", "to"),
    ]
