"""Content, position and what neither explains in hidden states, layer by layer."""

import altair as alt
import polars as pl

from spectrope.figures.base import Figure, Marks, Panel, exact, rows
from spectrope.figures.kinds.measured import by_encoding, legend
from spectrope.figures.tables import Tables

PARTS = {"content": "#1a65c8", "position": "#d84a02", "residual": "#8c8c8c"}


class SharesFigure(Figure, name="shares"):
    """Shares of token and position in the variance of what enters attention."""

    title = "Content and position in hidden states"
    place = 34
    needs = "shares"
    width = 200
    columns = 4

    def panels(self, tables: Tables) -> list[Panel]:
        """A panel per setting and encoding with a line per part and seed."""
        return by_encoding(tables, tables.shares, _layers)

    def caption(self, tables: Tables) -> str:
        """How to read it."""
        text = (
            "Shares of the variance of the hidden states that enter attention: due to the token, due to the "
            "position, and not explained by their sum; bars are 95 % intervals over examples."
        )
        return text if len(tables.seeds) == 1 else f"{text} Each seed has a line."


def _layers(part: pl.DataFrame) -> dict[str, Marks]:
    values = rows(part.drop("run", "setting"), "share")
    scale = alt.Scale(domain=list(PARTS), range=list(PARTS.values()))
    shared = {
        "x": alt.X("layer:O", title="layer", axis=alt.Axis(labelAngle=0)),
        "color": alt.Color("part:N", scale=scale, title=None, legend=legend()),
    }
    y = alt.Y("share:Q", title="share of variance", scale=alt.Scale(domain=[0, 1]))
    whole = [alt.Tooltip("part:N"), *(alt.Tooltip(f"{name}:Q", format="d") for name in ("seed", "layer"))]
    numbers = {"share": "share", "share_low": "from", "share_high": "to", "null": "by chance"}
    tooltip = [*whole, *(exact(name, title, ".3f") for name, title in numbers.items())]
    rule = alt.Chart().mark_rule(strokeWidth=1.2, clip=True)
    ends = {"y": alt.Y("share_low:Q", title="share of variance"), "y2": "share_high:Q"}
    return {
        "lines": Marks(values, alt.Chart().mark_line(strokeWidth=1.4).encode(**shared, y=y, detail="seed:N")),
        "intervals": Marks(values, rule.encode(**shared, **ends)),
        "points": Marks(
            values, alt.Chart().mark_circle(size=34, opacity=1).encode(**shared, y=y, tooltip=tooltip)
        ),
    }
