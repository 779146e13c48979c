"""Symbols of the encodings' own kernels, with the range that is proven to hold every eigenvalue."""

import math

import altair as alt
import polars as pl

from spectrope.figures.base import Figure, Marks, Panel, exact, rows
from spectrope.figures.kinds.measured import HEIGHT, ONE_SEED, first_seed, ordinal
from spectrope.figures.tables import Tables

ROOM = 0.06  # Between the bars of two heads, in radians.


class Symbol(Figure, name="symbol"):
    """The truncated symbol of each head's kernel beside its certified range and extreme eigenvalues."""

    title = "Symbol and certified range"
    place = 35
    needs = "symbol"
    width = 280
    columns = 3

    def panels(self, tables: Tables) -> list[Panel]:
        """A panel per setting, encoding and group of layers with one kernel; a line per head."""
        symbols = first_seed(tables.symbol).partition_by("setting", "encoding", "layers", as_dict=True)
        ends = first_seed(tables.extremes).partition_by("setting", "encoding", "layers", as_dict=True)
        return [
            Panel(setting, _title(encoding, layers), _layers(part, ends[setting, encoding, layers]), HEIGHT)
            for setting in tables.settings
            for encoding in tables.encodings
            for (group_setting, name, layers), part in symbols.items()
            if (group_setting, name) == (setting, encoding)
        ]

    def caption(self, tables: Tables) -> str:
        """How to read it."""
        text = (
            "The kernel is the encoding's own Toeplitz matrix at the length measured: its bias of the lag, "
            "extended evenly to the future, in logit units, or the mean cosine of its rotation. Lines: "
            "truncated symbols by angle. Bars on the right: bounds on all eigenvalues; the thick part "
            "extends from the smallest to the largest eigenvalue."
        )
        return text if len(tables.seeds) == 1 else f"{text} {ONE_SEED}"


def _title(encoding: str, layers: str) -> str:
    return f"{encoding}, layer{'' if layers.isdigit() else 's'} {layers}"


def _layers(part: pl.DataFrame, ends: pl.DataFrame) -> dict[str, Marks]:
    names = list(dict.fromkeys(ends["heads"]))
    colour = ordinal("heads", "head", names)
    last = math.pi + ROOM * (len(names) + 1)
    label = "datum.value == 0 ? '0' : datum.value < 2 ? 'π/2' : 'π'"
    axis = alt.Axis(values=[0, math.pi / 2, math.pi], labelExpr=label)
    x = alt.X("theta:Q", title="angle", axis=axis, scale=alt.Scale(domain=[0, last], nice=False))
    placed = [
        row | {"theta": math.pi + ROOM * (1 + names.index(row["heads"]))}
        for row in rows(ends.drop("run", "setting"), "upper_bound")
    ]
    words = {
        "lower_bound": "no eigenvalue below",
        "smallest_estimate": "least",
        "largest_estimate": "greatest",
        "upper_bound": "no eigenvalue above",
    }
    tooltip = ["heads:N", "kind:N", *(exact(name, title, ".4~g") for name, title in words.items())]
    thin, thick = (alt.Chart().mark_rule(strokeWidth=width) for width in (1, 4))
    bar = {"x": x, "color": colour, "tooltip": tooltip}
    symbols = rows(part.drop("run", "setting"), "symbol")
    line = alt.Chart().mark_line(strokeWidth=1.2)
    drawn = line.encode(x=x, y=alt.Y("symbol:Q", title="symbol"), color=colour, tooltip=["heads:N", "kind:N"])
    return {
        "symbols": Marks(symbols, drawn),
        "bounds": Marks(
            placed, thin.encode(**bar, y=alt.Y("lower_bound:Q", title="symbol"), y2="upper_bound:Q")
        ),
        "eigenvalues": Marks(
            placed,
            thick.encode(**bar, y=alt.Y("smallest_estimate:Q", title="symbol"), y2="largest_estimate:Q"),
        ),
    }
