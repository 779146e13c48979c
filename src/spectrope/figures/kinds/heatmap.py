"""Drop of each head, by layer and head."""

from dataclasses import dataclass
from typing import Any

import altair as alt
import polars as pl

from spectrope.figures.base import Figure, Marks, Panel, exact, rows
from spectrope.figures.names import DIVERGING
from spectrope.figures.spec import FAINT, panels_spec
from spectrope.figures.tables import Tables

CELL = 20  # Height of a row of heads, in pixels.
SEED_CELL = 13  # The same where each seed has a row.
MOST_NUMBERS = 8  # Heads in a row up to which every cell shows its number.
WIDTH = 200  # Of a panel, in pixels.


@dataclass(frozen=True)
class HeadValue:
    """A quantity of every head with its interval, by the names of its columns.

    Args:
        value: Column of the quantity.
        low: Column of the lower end of its interval.
        high: Column of the upper end.
        title: What it is, with its unit.
        form: How a cell writes it.
        least: Value, of either sign, that always fits the colour scale, so that noise stays pale.
    """

    value: str
    low: str
    high: str
    title: str
    form: str
    least: float


DROP = HeadValue("drop", "low", "high", "drop, points", ".0f", 1.0)


class HeatMap(Figure, name="heatmap"):
    """Drop from the removal of each head, by layer and head, for each encoding and setting."""

    title = "Drop by layer and head"
    place = 20
    needs = "ablation"
    key = "drops"
    width = WIDTH
    columns = 4

    def panels(self, tables: Tables) -> list[Panel]:
        """A panel per setting and encoding; those of a setting share one scale, and each seed has a row."""
        groups = tables.ablation.partition_by("setting", "encoding", as_dict=True)
        return [
            Panel(setting, encoding, _drops(part, largest_drop(tables, setting)), _height(part))
            for setting in tables.settings
            for encoding in tables.encodings
            if (part := groups.get((setting, encoding))) is not None
        ]

    def caption(self, tables: Tables) -> str:
        """How to read it."""
        text = (
            "Held-out accuracy with all heads minus held-out accuracy without this head, in points; a "
            "negative value means that the model performs better without the head. The 95 % interval of a "
            "faint number over examples contains zero; pointing at a cell shows it. The panels of a task "
            "share one scale."
        )
        if len(tables.seeds) == 1:
            return text
        seeds = "Each row is a seed; heads with the same number in different seeds do not correspond."
        return f"{text} {seeds}"

    def ramp(self, tables: Tables, setting: str) -> float:
        """Drop at the end of the colour scale."""
        return largest_drop(tables, setting)


def largest_drop(tables: Tables, setting: str) -> float:
    """The largest drop in size, of either sign, in points; at least 1, so that noise stays pale."""
    return largest_of(tables.ablation.filter(pl.col("setting") == setting), DROP)


def head_map(heads: pl.DataFrame, quantity: HeadValue) -> dict[str, Any]:
    """The heat map of one model as a Vega-Lite specification, with a panel for each of its stacks.

    Args:
        heads: A row per head, with `layer`, `head`, the quantity's columns, and in a model with two stacks
            its `role`.
        quantity: What to draw.
    """
    if "role" not in heads.columns:
        heads = heads.with_columns(role=pl.lit(""))
    heads, limit = heads.with_columns(seed=pl.lit(0)), largest_of(heads, quantity)
    tooltip = [*whole_numbers("layer", "head"), *exact_values(quantity, ".3f")]
    panels = [
        Panel(
            "",
            str(role),
            {**unmeasured(part, quantity), **head_cells(part, limit, quantity, tooltip)},
            _height(part),
        )
        for (role,), part in heads.partition_by("role", as_dict=True, maintain_order=True).items()
    ]
    return panels_spec(panels, WIDTH, HeatMap.columns)


def largest_of(heads: pl.DataFrame, quantity: HeadValue) -> float:
    """The largest value of either sign, or the quantity's least."""
    values = rows(heads, quantity.value)
    return max([quantity.least, *(abs(row[quantity.value]) for row in values)])


def _height(part: pl.DataFrame) -> int:
    layers, seeds = part["layer"].n_unique(), part["seed"].n_unique()
    return layers * (CELL if seeds == 1 else SEED_CELL * seeds)


def _drops(part: pl.DataFrame, limit: float) -> dict[str, Marks]:
    accuracies = [exact("intact", "all heads, %"), exact("ablated", "without it, %")]
    tooltip = [
        alt.Tooltip("encoding:N"),
        *whole_numbers("seed", "layer", "head"),
        *exact_values(DROP, ".2f"),
        *accuracies,
    ]
    return head_cells(part.drop("run", "setting"), limit, DROP, tooltip)


def head_cells(
    part: pl.DataFrame, limit: float, quantity: HeadValue, tooltip: list[alt.Tooltip]
) -> dict[str, Marks]:
    """A cell per layer and head with its number.

    Args:
        part: A row per head and seed.
        limit: Value of either sign at the ends of the colour scale.
        quantity: What to draw.
        tooltip: What pointing at a cell shows.
    """
    values = rows(part, quantity.value)
    several = part["seed"].n_unique() > 1
    place = {
        "x": alt.X("head:O", title="head", axis=alt.Axis(labelAngle=0, labelOverlap=True, labelSeparation=3)),
        "y": alt.Y("layer:O", title="layer", scale=alt.Scale(paddingInner=0.1 if several else 0)),
        "yOffset": alt.YOffset("seed:O", scale=alt.Scale(paddingInner=0)),
    }
    domain = [limit * step for step in (-1, -0.5, 0, 0.5, 1)]
    scale = alt.Scale(domain=domain, range=list(DIVERGING), interpolate="rgb")  # As browsers draw gradients.
    colour = alt.Color(f"{quantity.value}:Q", scale=scale, title=quantity.title)
    cells = alt.Chart().mark_rect(stroke="white", strokeWidth=0.8)
    return {
        "cells": Marks(values, cells.encode(**place, color=colour, tooltip=tooltip)),
        "numbers": _numbers(values, place, limit, quantity),
    }


def _numbers(values: list[dict[str, Any]], place: dict[str, Any], limit: float, quantity: HeadValue) -> Marks:
    """The value of every head where there is room, else the largest of each seed."""
    value, low, high = quantity.value, quantity.low, quantity.high
    shown = values if all(row["head"] < MOST_NUMBERS for row in values) else _largest(values, value)
    ink = alt.condition(f"abs(datum.{value}) > {0.7 * limit}", alt.value("white"), alt.value("#2b2b2b"))
    sure = alt.condition(f"datum.{low} > 0 || datum.{high} < 0", alt.value(1.0), alt.value(0.45))
    text = alt.Chart().mark_text(fontSize=9)
    number = alt.Text(f"{value}:Q", format=quantity.form)
    return Marks(shown, text.encode(**place, text=number, color=ink, opacity=sure))


def _largest(values: list[dict[str, Any]], value: str) -> list[dict[str, Any]]:
    best: dict[int, dict[str, Any]] = {}
    for row in sorted(values, key=lambda row: row[value]):
        best[row["seed"]] = row
    return list(best.values())


def unmeasured(part: pl.DataFrame, quantity: HeadValue) -> dict[str, Marks]:
    """A grey cell for each that screening left out."""
    left = part.filter(pl.col(quantity.value).is_null()).select("layer", "head")
    if left.is_empty():
        return {}
    cells = alt.Chart().mark_rect(fill=FAINT, stroke="white", strokeWidth=0.8)
    text = alt.value("not measured: small first-order effect")
    return {"unmeasured": Marks(left.to_dicts(), cells.encode(x="head:O", y="layer:O", tooltip=text))}


def whole_numbers(*names: str) -> list[alt.Tooltip]:
    """Lines of a tooltip with whole numbers."""
    return [alt.Tooltip(f"{name}:Q", format="d") for name in names]


def exact_values(quantity: HeadValue, form: str) -> list[alt.Tooltip]:
    """Lines of a tooltip with a quantity and its interval."""
    named = {quantity.value: quantity.title, quantity.low: "from", quantity.high: "to"}
    return [exact(name, title, form) for name, title in named.items()]
