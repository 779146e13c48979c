"""Vega-Lite specifications: the same panels for the page, one by one, and for files, side by side."""

import math
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

import altair as alt

from spectrope.core import StoreError
from spectrope.figures.base import EMPHASIS, Figure, Panel
from spectrope.figures.tables import Tables

DIGITS = 10  # Significant ones of the numbers in figures; processors differ in the last of 16.
FONT = "system-ui, -apple-system, 'Segoe UI', 'Helvetica Neue', Arial, 'Liberation Sans', sans-serif"
INK, QUIET, FAINT = "#1d1d1b", "#5c5c5c", "#e4e2dc"
_AXIS = {
    "labelColor": QUIET,
    "titleColor": QUIET,
    "titleFontWeight": "normal",
    "labelFontSize": 11,
    "titleFontSize": 11,
    "domainColor": "#9a9a9a",
    "tickColor": "#9a9a9a",
    "tickSize": 4,
    "gridColor": FAINT,
    "titlePadding": 6,
    "labelPadding": 5,
    "labelFlush": False,
    "labelSeparation": 6,  # Pixels; labels that would be closer are left out.
}
LEGEND = {
    "labelFontSize": 11,
    "labelLimit": 0,  # Names are never cut.
    "labelColor": INK,
    "titleColor": QUIET,
    "titleFontWeight": "normal",
    "symbolType": "stroke",
    "symbolSize": 500,
    "symbolStrokeWidth": 2,
    "symbolOpacity": 1,
}
THEME: dict[str, Any] = {
    "font": FONT,
    "background": "transparent",
    "view": {"stroke": None},
    "axis": _AXIS,
    "axisX": {"grid": False},
    "axisY": {"domain": False, "ticks": False, "tickCount": 5},
    "axisBand": {"domain": False, "ticks": False},
    "title": {"fontSize": 12, "fontWeight": "normal", "color": INK, "anchor": "start"},
    "line": {"strokeJoin": "round"},
}


def page_spec(panel: Panel) -> dict[str, Any]:
    """A panel as wide as its place on the page, which explains the colours itself; its layers have names."""
    layered = _layered(panel)
    for name, layer in zip(panel.layers, layered["layer"], strict=True):
        layer["name"] = name
    return _whole(
        {
            **layered,
            "width": "container",
            "height": panel.height,
            "description": ", ".join(filter(None, (panel.group, panel.title))),
        },
        legend={"disable": True},
    )


def file_spec(figure: Figure, tables: Tables) -> dict[str, Any]:
    """All panels of a figure, with their legend, on a white ground.

    Raises:
        StoreError: If no run has the table that the figure draws, or none of its rows makes a panel.
    """
    figure.check(tables)
    scale = "shared" if figure.key == "encodings" else "independent"
    panels = figure.panels(tables)
    if not panels:
        raise StoreError(
            f"figure {figure.kind!r} has nothing to draw for these runs; add runs that it compares."
        )
    return panels_spec(panels, figure.width, figure.columns, legend=figure.key != "none", colours=scale)


def panels_spec(
    panels: Sequence[Panel], width: int, columns: int, *, legend: bool = True, colours: str = "independent"
) -> dict[str, Any]:
    """Panels group below group, on a white ground.

    Args:
        panels: What is drawn.
        width: Of each, in pixels.
        columns: Panels side by side.
        legend: Whether colours are explained.
        colours: Whether groups have their colours in common: "shared" or "independent".
    """
    groups = [list(group) for _, group in groupby(panels, key=lambda panel: panel.group)]
    rows = [_row(width, columns, group) for group in groups]
    whole = {"vconcat": rows, "spacing": 32, "padding": 12, "background": "white"} | _resolved(colours)
    return _whole(whole, legend=LEGEND | {"disable": not legend})


def _layered(panel: Panel) -> dict[str, Any]:
    """The layers of a panel, and beside them the rows that most of them draw, so that these appear once."""
    layers = list(panel.layers.values())
    common = max(layers, key=lambda layer: sum(other.rows is layer.rows for other in layers)).rows
    specs = [
        layer.spec() if layer.rows is common else {"data": {"values": layer.rows}, **layer.spec()}
        for layer in layers
    ]
    return {"data": {"values": common}, "layer": specs}


def _rounded(value: Any) -> Any:
    """The value, in which every number has as many digits as processors agree on, so that files are the same
    everywhere; null in place of numbers that are not finite, which JSON does not have."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: _rounded(one) for name, one in value.items()}
    return [_rounded(one) for one in value] if isinstance(value, list | tuple) else value


def _row(width: int, columns: int, panels: Sequence[Panel]) -> dict[str, Any]:
    charts = [
        {
            **_layered(panel),
            "width": width,
            "height": panel.height,
            "title": panel.title,
        }
        for panel in panels
    ]
    heading = {"text": panels[0].group, "fontSize": 15, "fontWeight": "bold", "offset": 10}
    title = {"title": heading} if panels[0].group else {}
    return {"concat": charts, "columns": columns, "spacing": 24, **title} | _resolved("shared")


def _resolved(scale: str) -> dict[str, Any]:
    return {"resolve": {"scale": {"color": scale, "strokeDash": scale}}}


def _whole(spec: dict[str, Any], **config: Any) -> dict[str, Any]:
    return {
        "$schema": alt.SCHEMA_URL,
        **_rounded(spec),
        "params": [{"name": EMPHASIS, "value": ""}],
        "config": THEME | config,
    }
