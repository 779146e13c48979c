"""The picture of the crossover of polynomial attention, by blocks and by FFT: time, memory and error."""

import math
from pathlib import Path

import altair as alt
import polars as pl

from spectrope.figures import QUIET, Marks, Panel, panels_spec, write_spec

WIDTH, HEIGHT = 300, 220
COLOURS = {
    "polynomial": "#d84a02",
    "toeplitz_fft": "#079e6f",
    "relative_fft": "#8f5bd6",
    "exact": "#464646",
    "certified error": "#1a65c8",
    "measured error": "#dc9e18",
}
DIRECTIONS = {"forward": [1, 0], "both": [5, 3]}


def save_crossover(timings: pl.DataFrame, errors: pl.DataFrame, tolerance: float, path: Path) -> Path:
    """Draw a crossover into a file.

    Args:
        timings: Columns kernel, direction, length in tokens, seconds and mib.
        errors: Columns degree, error_bound and error, in units of max|v|.
        tolerance: The error asked for, drawn as a line.
        path: File to write; its suffix says how.

    Raises:
        ConfigError: If the file's suffix says nothing of how.
        StoreError: If the file cannot be written.
    """
    used = [name for name in COLOURS if "error" in name or name in timings["kernel"].unique()]
    scale = alt.Scale(domain=used, range=[COLOURS[name] for name in used])
    colour = alt.Color("line:N", title=None, scale=scale)
    panels = [
        _by_length(timings, colour, "seconds", "time", "seconds"),
        _by_length(timings, colour, "mib", "memory of tensors", "MiB"),
        _by_degree(errors, colour, tolerance),
    ]
    return write_spec(panels_spec(panels, WIDTH, len(panels)), path)


def _by_length(timings: pl.DataFrame, colour: alt.Color, column: str, title: str, unit: str) -> Panel:
    """One quantity by length, both axes logarithmic."""
    positive = timings.filter(pl.col(column) > 0).rename({"kernel": "line"})
    lengths = positive["length"].unique().sort().to_list()
    axis = alt.Axis(values=lengths, format=",", labelOverlap=True)
    x = alt.X("length:Q", title="tokens", scale=alt.Scale(type="log", nice=False), axis=axis)
    dash = alt.StrokeDash(
        "direction:N",
        title=None,
        scale=alt.Scale(domain=list(DIRECTIONS), range=list(DIRECTIONS.values())),
        legend=alt.Legend(labelExpr="datum.value == 'both' ? 'with backward' : 'forward'"),
    )
    tooltip = ["line:N", "direction:N", "length:Q", alt.Tooltip(f"{column}:Q", format=".3~g", title=unit)]
    y = _logarithmic(column, unit, positive[column])
    chart = _line().encode(x=x, y=y, color=colour, strokeDash=dash, tooltip=tooltip)
    return Panel("", title, {"lines": Marks(positive.to_dicts(), chart)}, HEIGHT)


def _by_degree(errors: pl.DataFrame, colour: alt.Color, tolerance: float) -> Panel:
    """Certified and measured error by degree."""
    named = errors.rename({"error_bound": "certified error", "error": "measured error"})
    long = named.unpivot(
        ["certified error", "measured error"], index="degree", variable_name="line", value_name="error"
    )
    positive = long.filter(pl.col("error") > 0)
    x = alt.X("degree:O", title="degree", axis=alt.Axis(labelAngle=0))
    y = _logarithmic("error", "error / max|v|", positive["error"], ".0e")
    tooltip = ["line:N", "degree:O", alt.Tooltip("error:Q", format=".2e")]
    lines = _line().encode(x=x, y=y, color=colour, tooltip=tooltip)
    asked = alt.Chart().mark_rule(color=QUIET, strokeDash=[2, 2]).encode(y="error:Q")
    layers = {"lines": Marks(positive.to_dicts(), lines), "tolerance": Marks([{"error": tolerance}], asked)}
    return Panel("", f"error by degree; dotted: {tolerance:g}", layers, HEIGHT)


def _line() -> alt.Chart:
    return alt.Chart().mark_line(strokeWidth=1.8, point={"size": 18})


def _logarithmic(column: str, title: str, values: pl.Series, numbers: str = "~g") -> alt.Y:
    """A logarithmic axis with lines at powers of ten alone."""
    logs = values.log10()
    low, high = math.floor(float(logs.min())), math.ceil(float(logs.max()))  # pyright: ignore[reportArgumentType]
    powers = [10.0**power for power in range(low, max(high, low + 1) + 1)]
    scale = alt.Scale(type="log", domain=[powers[0], powers[-1]])
    return alt.Y(f"{column}:Q", title=title, scale=scale, axis=alt.Axis(values=powers, format=numbers))
