"""How few parameters and frequencies training changes in each head."""

from collections.abc import Mapping
from typing import Any, ClassVar

import altair as alt
import polars as pl

from spectrope.figures.base import Figure, Marks, Panel, exact, rows
from spectrope.figures.kinds.measured import by_encoding, legend
from spectrope.figures.names import GAIN
from spectrope.figures.tables import Tables

PARTS = dict(zip(("frequencies", "parameters"), GAIN, strict=True))  # Colours of no encoding.


class MovementFigure(Figure, name="movement"):
    """Shares of the parameters and of the frequencies of each head that hold what training changed."""

    title = "Parameters and frequencies that training changed"
    place = 36
    needs = "movement"
    reads: ClassVar[Mapping[str, Any]] = {
        "layer": pl.Int64,
        "head": pl.Int64,
        "responding": pl.Float64,
        "bands": pl.Float64,
        "pairs": pl.Int64,
    }
    width = 240
    columns = 4

    def panels(self, tables: Tables) -> list[Panel]:
        """A panel per setting and encoding with two points per head and seed."""
        shares = tables[self.needs].with_columns(
            pl.col("responding").alias("parameters"),
            (pl.col("bands") / pl.col("pairs")).alias("frequencies"),
        )
        tall = shares.unpivot(
            list(PARTS),
            index=["run", "setting", "encoding", "seed", "layer", "head"],
            variable_name="part",
            value_name="share",
        )
        return by_encoding(tables, tall, _layers)

    def caption(self, tables: Tables) -> str:
        """How to read it."""
        return (
            "A pair of points per head and run. Parameters: the smallest share of the entries of W_Q and W_K "
            "that holds 90 % of the squared change between the start and the end of training. Frequencies: "
            "the effective number of rotated pairs among which that change is spread, divided by the number "
            "of pairs; only for encodings that rotate each pair at one frequency. If all changed equally, "
            "these shares would be 0.9 and 1; for independent normal changes, they are 0.44 and almost 1."
        )


def _layers(part: pl.DataFrame) -> dict[str, Marks]:
    values = rows(part.drop("run", "setting"), "share")
    scale = alt.Scale(domain=list(PARTS), range=list(PARTS.values()))
    tooltip = [
        alt.Tooltip("part:N"),
        *(alt.Tooltip(f"{name}:Q", format="d") for name in ("seed", "layer", "head")),
        exact("share", "share", ".3f"),
    ]
    points = alt.Chart().mark_circle(size=34, opacity=0.6)
    encoded = points.encode(
        x=alt.X("layer:O", title="layer", axis=alt.Axis(labelAngle=0)),
        xOffset=alt.XOffset("part:N", sort=list(PARTS)),
        y=alt.Y("share:Q", title="share", scale=alt.Scale(domain=[0, 1])),
        color=alt.Color(
            "part:N", scale=scale, title=None, legend=legend(symbolType="circle", symbol_size=50)
        ),
        tooltip=tooltip,
    )
    return {"points": Marks(values, encoded)}
