"""How a layer's gradient is shared among its heads while a run trains."""

import altair as alt
import polars as pl

from spectrope.figures.base import Figure, Marks, Panel, exact, rows
from spectrope.figures.kinds.measured import HEIGHT, ONE_SEED, first_seed, ordinal
from spectrope.figures.tables import Tables


class GradientShares(Figure, name="gradients"):
    """Each head's share of its layer's gradient by step."""

    title = "Gradient share of each head during training"
    needs = "learning"
    width = 240
    columns = 3

    def panels(self, tables: Tables) -> list[Panel]:
        """A panel per setting, encoding and layer with a line per head."""
        groups = first_seed(tables.learning).partition_by("setting", "encoding", "layer", as_dict=True)
        return [
            Panel(setting, f"{encoding}, layer {layer}", _layers(part), HEIGHT)
            for setting in tables.settings
            for encoding in tables.encodings
            for (group_setting, name, layer), part in groups.items()
            if (group_setting, name) == (setting, encoding)
        ]

    def caption(self, tables: Tables) -> str:
        """How to read it."""
        text = (
            "The energy of the loss's gradient by each head's form, W_QᵀW_K at the frequencies of its "
            "rotation, as a share of its layer's, before the step named, always on the same training "
            "examples. The dashed line is an equal share."
        )
        return text if len(tables.seeds) == 1 else f"{text} {ONE_SEED}"


def _layers(part: pl.DataFrame) -> dict[str, Marks]:
    values = rows(part.drop("run", "setting"), "gradient_share")
    heads = sorted(set(part["head"]))
    x = alt.X("step:Q", title="step", axis=alt.Axis(tickMinStep=1, format="~s"))
    y = alt.Y("gradient_share:Q", title="share of the layer's gradient", axis=alt.Axis(format="%"))
    colour = ordinal("head", "head", heads)
    whole = [alt.Tooltip(f"{name}:Q", format="d") for name in ("step", "layer", "head")]
    tooltip = [
        *whole,
        exact("gradient_share", "share", ".1%"),
        exact("positional_share", "positional share", ".3f"),
        exact("positional_null", "by chance", ".3f"),
    ]
    equal = alt.Chart().mark_rule(strokeDash=[4, 3], color="#5c5c5c")
    shared = {"x": x, "y": y, "color": colour}
    return {
        "equal": Marks([{"gradient_share": 1 / len(heads)}], equal.encode(y=y)),
        "heads": Marks(values, alt.Chart().mark_line(strokeWidth=1.4).encode(**shared)),
        "points": Marks(
            values, alt.Chart().mark_circle(size=18, opacity=1).encode(**shared, tooltip=tooltip)
        ),
    }
