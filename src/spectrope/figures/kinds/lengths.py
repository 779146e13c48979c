"""Accuracy against the length of the sequences."""

from typing import Any

import altair as alt
import polars as pl

from spectrope.figures.base import Figure, Marks, Panel, colour, dash, emphasised, exact
from spectrope.figures.summary import mean_interval
from spectrope.figures.tables import Tables

HEIGHT = 260


class LengthAccuracy(Figure, name="lengths"):
    """Held-out accuracy of each encoding on longer and longer sequences."""

    title = "Accuracy by length"
    place = 15
    needs = "extrapolation"
    key = "encodings"

    def panels(self, tables: Tables) -> list[Panel]:
        """A panel per setting and scaling of positions."""
        frame = tables[self.needs]
        groups = frame.partition_by("setting", "scaling", as_dict=True, maintain_order=True)
        return [
            Panel(setting, "as trained" if scaling == "none" else scaling, self._layers(tables, part), HEIGHT)
            for setting in tables.settings
            for (of, scaling), part in groups.items()
            if of == setting
        ]

    def caption(self, tables: Tables) -> str:
        """How to read it."""
        text = (
            "Lengths are multiples of the longest in training; labels are those of training. Lines end "
            "where an encoding does not support longer sequences."
        )
        alone = "95 % Wilson intervals over examples"
        counts = tables[self.needs].group_by("setting", "encoding").agg(pl.col("seed").n_unique())["seed"]
        if counts.max() == 1:
            return f"{text} Bars are {alone}."
        beside = f" Where there is one seed, bars are {alone}." if counts.min() == 1 else ""
        return f"{text} Means over seeds; bars are their 95 % t intervals, cut at 0 and 100 %.{beside}"

    def _layers(self, tables: Tables, part: pl.DataFrame) -> dict[str, Marks]:
        values = [
            _point(name, factor, group)
            for (name, factor), group in part.group_by("encoding", "factor", maintain_order=True)
            if group["accuracy"].is_not_null().all()
        ]
        order = {name: place for place, name in enumerate(tables.encodings)}
        values.sort(key=lambda value: (order[value["encoding"]], value["factor"]))
        axis = alt.Axis(values=sorted({value["factor"] for value in values}), format="~g")
        length = alt.X("factor:Q", title="length, in trained lengths", axis=axis)
        shared: dict[str, Any] = {
            "x": length.scale(type="log", base=2),
            "color": colour(tables.encodings),
        }
        accuracy = alt.Y("accuracy:Q", title="accuracy, %", scale=alt.Scale(domain=[0, 100]))
        tooltip = [
            alt.Tooltip("encoding:N"),
            exact("factor", "length", ".3g"),
            exact("accuracy", "accuracy, %"),
            exact("low", "from, %"),
            exact("high", "to, %"),
        ]
        line, point = alt.Chart().mark_line(strokeWidth=1.6), alt.Chart().mark_point(size=28, filled=True)
        bar = alt.Chart().mark_rule(strokeWidth=1.5)
        drawn = {"y": accuracy, "tooltip": tooltip}
        lines = line.encode(**shared, **drawn, strokeDash=dash(tables.encodings), opacity=emphasised(0.85))
        return {
            "intervals": Marks(
                values, bar.encode(**shared, y="low:Q", y2="high:Q", opacity=emphasised(0.35))
            ),
            "lines": Marks(values, lines),
            "points": Marks(values, point.encode(**shared, **drawn, opacity=emphasised(0.85))),
        }


def _point(encoding: Any, factor: Any, group: pl.DataFrame) -> dict[str, Any]:
    """Mean accuracy over seeds with its interval, or of one seed with that over examples, in percent."""
    percent = {name: 100 * group[name] for name in ("accuracy", "low", "high")}
    over_seeds = mean_interval(percent["accuracy"].to_list())
    low, high = (
        (percent["low"][0], percent["high"][0])
        if over_seeds is None
        else (max(0.0, over_seeds.low), min(100.0, over_seeds.high))
    )
    mean = float(sum(percent["accuracy"]) / len(group))
    return {"encoding": encoding, "factor": factor, "accuracy": mean, "low": low, "high": high}
