"""Energy of each head's logits by band of rotary frequencies."""

import altair as alt
import polars as pl

from spectrope.figures.base import Figure, Marks, Panel, exact, rows
from spectrope.figures.kinds.measured import ONE_SEED, by_encoding, first_seed, legend
from spectrope.figures.names import DIVERGING
from spectrope.figures.tables import Tables

CELL = 11  # Height of a head, in pixels.


class BandEnergies(Figure, name="bands"):
    """The share of each band of frequencies in the energy of every rotated head."""

    title = "Energy by frequency"
    place = 33
    needs = "bands"
    width = 240
    columns = 4

    def panels(self, tables: Tables) -> list[Panel]:
        """A panel per setting and encoding; all share one scale."""
        limit = max([0.01, *(abs(row["share"]) for row in rows(tables.bands, "share"))])
        return by_encoding(
            tables,
            first_seed(tables.bands),
            lambda part: _layers(part, limit),
            lambda part: CELL * part.select("layer", "head").unique().height,
        )

    def caption(self, tables: Tables) -> str:
        """How to read it."""
        text = (
            "One row per head, layer by layer, and one column per frequency band, from one radian per "
            "position downwards, with its share of the energy of the head's logits (row means included). "
            "Shares sum to 1; a share is negative if bands cancel."
        )
        return text if len(tables.seeds) == 1 else f"{text} {ONE_SEED}"


def _layers(part: pl.DataFrame, limit: float) -> dict[str, Marks]:
    values = rows(part.drop("run", "setting"), "share")
    place = {
        "x": alt.X("band:O", title="band, high to low frequency", axis=alt.Axis(labelAngle=0)),
        "y": alt.Y("layer:O", title="layer", scale=alt.Scale(paddingInner=0.08)),
        "yOffset": alt.YOffset("head:O", scale=alt.Scale(paddingInner=0)),
    }
    domain = [limit * step for step in (-1, -0.5, 0, 0.5, 1)]
    scale = alt.Scale(domain=domain, range=list(DIVERGING), interpolate="rgb")
    key = legend(gradientLength=120, gradientThickness=8, format=".1f")
    whole = [alt.Tooltip(f"{name}:Q", format="d") for name in ("layer", "head", "band")]
    ends = [
        exact(f"frequency_{end}", f"frequency, {word}", ".3~g")
        for end, word in (("low", "from"), ("high", "to"))
    ]
    shares = [
        exact("share", "share", ".3f"),
        exact("share_low", "from", ".3f"),
        exact("share_high", "to", ".3f"),
    ]
    cells = alt.Chart().mark_rect(stroke="white", strokeWidth=0.5)
    colour = alt.Color("share:Q", scale=scale, title="share", legend=key)
    return {"cells": Marks(values, cells.encode(**place, color=colour, tooltip=[*whole, *ends, *shares]))}
