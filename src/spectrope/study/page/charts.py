"""What the study's charts share: one ground, one row of panels per group, files that any page can show."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np

from spectrope.figures.save import WRITERS
from spectrope.figures.spec import INK, LEGEND, QUIET, THEME
from spectrope.stats.seeds import t_interval
from spectrope.store.files import disk_errors, replace_file
from spectrope.study.predictions import Values

Spec = dict[str, Any]
SPARED = "fails but for Holm"
OUTCOMES = {"holds": "#079e6f", "fails": "#d84a02", SPARED: "#f0a36b", "inconclusive": "#8a8a8a"}
KEY = {"title": None, "symbolType": "circle", "symbolSize": 80}  # A legend of dots.
RULE = {"type": "rule", "strokeDash": [4, 3], "color": QUIET}


def whole(*rows: Spec) -> Spec:
    """Charts below one another on a white ground, in the report's style."""
    return {
        "$schema": alt.SCHEMA_URL,
        "vconcat": list(rows),
        "spacing": 24,
        "padding": 12,
        "background": "white",
        "resolve": {"scale": {"color": "independent"}},
        "config": THEME | {"legend": LEGEND},
    }


def beside(charts: Sequence[Spec], columns: int = 3) -> Spec:
    """Charts side by side."""
    return {"concat": list(charts), "columns": columns, "spacing": 20}


def panel(title: str, width: int, height: int, layers: Sequence[Spec]) -> Spec:
    """Layers over one another."""
    return {
        "title": {"text": title, "color": INK},
        "width": width,
        "height": height,
        "layer": list(layers),
    }


def layer(rows: Sequence[Mapping[str, Any]], mark: Spec, **channels: Spec) -> Spec:
    """One kind of mark over some rows."""
    return {"data": {"values": list(rows)}, "mark": mark, "encoding": channels}


def interval_of(values: Values) -> dict[str, float] | None:
    """Mean and 95 % t interval over seeds, as a row; None for fewer than two seeds."""
    if len(values) < 2:
        return None
    found = t_interval(np.array(list(values.values())))
    return {"estimate": found.estimate, "low": found.low, "high": found.high}


def save_chart(spec: Spec, path: Path) -> None:
    """Write a chart as SVG, whole or not at all.

    Raises:
        StoreError: If the file cannot be written.
    """
    drawn = WRITERS[".svg"](spec)
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, lambda temporary: temporary.write_bytes(drawn))
