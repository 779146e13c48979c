"""Drop by layer and head."""

from typing import Any

import altair as alt
import polars as pl

from spectrope.figures.base import Figure, Marks, Panel, exact, rows
from spectrope.figures.names import DIVERGING
from spectrope.figures.tables import Tables

CELL = 20  # Height of a row of heads, in pixels.
SEED_CELL = 13  # The same where each seed has a row.
MOST_NUMBERS = 8  # Heads in a row up to which every cell shows its number.


class HeatMap(Figure, name="heatmap"):
    """What each head's removal costs, by layer and head, for each encoding and setting."""

    title = "Drop by layer and head"
    place = 20
    needs = "ablation"
    key = "drops"
    width = 200
    columns = 4

    def panels(self, tables: Tables) -> list[Panel]:
        """A panel per setting and encoding; those of a setting share one scale, and each seed has a row."""
        groups = tables.ablation.partition_by("setting", "encoding", as_dict=True)
        return [
            Panel(setting, encoding, _layers(part, largest_drop(tables, setting)), _height(part))
            for setting in tables.settings
            for encoding in tables.encodings
            if (part := groups.get((setting, encoding))) is not None
        ]

    def caption(self, tables: Tables) -> str:
        """How to read it."""
        text = (
            "Held-out accuracy with all heads minus held-out accuracy without this one, in points; "
            "below zero the model does better without the head. Faint numbers have a 95 % interval over "
            "examples that holds zero; pointing at a cell shows it. The panels of a task share one scale."
        )
        if len(tables.seeds) == 1:
            return text
        return f"{text} Each row is a seed; the heads of two seeds share nothing but their number."

    def ramp(self, tables: Tables, setting: str) -> float:
        """Drop at the end of the colour scale."""
        return largest_drop(tables, setting)


def largest_drop(tables: Tables, setting: str) -> float:
    """The largest drop in size, of either sign, in points; at least 1, so that noise stays pale."""
    heads = rows(tables.ablation.filter(pl.col("setting") == setting), "drop")
    return max([1.0, *(abs(row["drop"]) for row in heads)])


def _height(part: pl.DataFrame) -> int:
    layers, seeds = part["layer"].n_unique(), part["seed"].n_unique()
    return layers * (CELL if seeds == 1 else SEED_CELL * seeds)


def _layers(part: pl.DataFrame, limit: float) -> dict[str, Marks]:
    values = rows(part.drop("run", "setting"), "drop")
    several = part["seed"].n_unique() > 1
    place = {
        "x": alt.X("head:O", title="head", axis=alt.Axis(labelAngle=0, labelOverlap=True, labelSeparation=3)),
        "y": alt.Y("layer:O", title="layer", scale=alt.Scale(paddingInner=0.1 if several else 0)),
        "yOffset": alt.YOffset("seed:O", scale=alt.Scale(paddingInner=0)),
    }
    domain = [limit * step for step in (-1, -0.5, 0, 0.5, 1)]
    scale = alt.Scale(domain=domain, range=list(DIVERGING), interpolate="rgb")  # As browsers draw gradients.
    colour = alt.Color("drop:Q", scale=scale, title="drop, points")
    cells = alt.Chart().mark_rect(stroke="white", strokeWidth=0.8)
    return {
        "cells": Marks(values, cells.encode(**place, color=colour, tooltip=_tooltip())),
        "numbers": _numbers(values, place, limit),
    }


def _numbers(values: list[dict[str, Any]], place: dict[str, Any], limit: float) -> Marks:
    """The drop of every head where there is room, else the largest of each seed."""
    shown = values if all(row["head"] < MOST_NUMBERS for row in values) else _largest(values)
    ink = alt.condition(f"abs(datum.drop) > {0.7 * limit}", alt.value("white"), alt.value("#2b2b2b"))
    sure = alt.condition("datum.low > 0 || datum.high < 0", alt.value(1.0), alt.value(0.45))
    text = alt.Chart().mark_text(fontSize=9)
    number = alt.Text("drop:Q", format=".0f")
    return Marks(shown, text.encode(**place, text=number, color=ink, opacity=sure))


def _largest(values: list[dict[str, Any]]) -> list[dict[str, Any]]:
    best: dict[int, dict[str, Any]] = {}
    for row in sorted(values, key=lambda row: row["drop"]):
        best[row["seed"]] = row
    return list(best.values())


def _tooltip() -> list[alt.Tooltip]:
    whole = [alt.Tooltip(f"{name}:Q", format="d") for name in ("seed", "layer", "head")]
    drops = [
        exact("drop", "drop, points"),
        exact("low", "from"),
        exact("high", "to"),
        exact("intact", "all heads, %"),
        exact("ablated", "without it, %"),
    ]
    return [alt.Tooltip("encoding:N"), *whole, *drops]
