"""How many heads of a layer take part in learning."""

import altair as alt
import polars as pl

from spectrope.figures.base import Figure, Marks, Panel, exact, rows, span
from spectrope.figures.kinds.measured import by_encoding, legend, ordinal
from spectrope.figures.tables import Tables

SIDES = {"gradient": "of gradients", "weight": "of weights"}


class Participation(Figure, name="participation"):
    """Participation ratios of the heads of each layer by step."""

    title = "Participation of heads during training"
    needs = "participation"
    width = 240
    columns = 4

    def panels(self, tables: Tables) -> list[Panel]:
        """A panel per setting and encoding with two lines per layer and seed."""
        tall = tables.participation.unpivot(
            list(SIDES), index=["run", "setting", "encoding", "seed", "step", "layer"], value_name="ratio"
        ).with_columns(pl.col("variable").replace_strict(SIDES).alias("side"))
        return by_encoding(tables, tall.drop("variable"), _layers)

    def caption(self, tables: Tables) -> str:
        """How to read it."""
        text = (
            "The participation ratio of the heads of each layer, by the energy of the loss's gradient by "
            "their forms and by the energy of these forms, W_QᵀW_K: 1 if all H heads contribute equally, "
            "1/H if a single head contributes everything."
        )
        return text if len(tables.seeds) == 1 else f"{text} Each seed has its lines."


def _layers(part: pl.DataFrame) -> dict[str, Marks]:
    values = rows(part.drop("run", "setting"), "ratio")
    _, top = span([1.0], 1.0)
    shared = {
        "x": alt.X("step:Q", title="step", axis=alt.Axis(tickMinStep=1, format="~s")),
        "y": alt.Y("ratio:Q", title="participation ratio", scale=alt.Scale(domain=[0, top], nice=False)),
        "color": ordinal("layer", "layer", sorted(set(part["layer"]))),
    }
    dash = alt.StrokeDash(
        "side:N",
        title=None,
        scale=alt.Scale(domain=list(SIDES.values()), range=[[1, 0], [4, 3]]),
        legend=legend(),
    )
    whole = [
        alt.Tooltip("side:N"),
        *(alt.Tooltip(f"{name}:Q", format="d") for name in ("seed", "step", "layer")),
    ]
    line, dots = alt.Chart().mark_line(strokeWidth=1.4), alt.Chart().mark_circle(size=18, opacity=1)
    tooltip = [*whole, exact("ratio", "participation", ".3f")]
    return {
        "lines": Marks(values, line.encode(**shared, strokeDash=dash, detail="seed:N")),
        "points": Marks(values, dots.encode(**shared, tooltip=tooltip)),
    }
