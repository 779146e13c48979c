"""How well each spectral quantity ranks heads by the effect of their removal."""

import altair as alt
import polars as pl

from spectrope.figures.base import Figure, Marks, Panel, exact, rows
from spectrope.figures.kinds.measured import by_encoding, legend
from spectrope.figures.tables import Tables

ROW = 20  # Height of a quantity, in pixels.
SCOPES = {"heads": "#1a65c8", "within layers": "#d84a02"}


class Predictors(Figure, name="predictors"):
    """Rank correlations of every quantity with the drop, with their intervals."""

    title = "Rank correlations of spectral quantities with drops"
    needs = "correlation"
    width = 240
    columns = 3

    def panels(self, tables: Tables) -> list[Panel]:
        """A panel per setting and encoding with a mark per quantity, scope and seed."""
        return by_encoding(
            tables, tables.correlation, _layers, lambda part: ROW * part["quantity"].n_unique()
        )

    def caption(self, tables: Tables) -> str:
        """How to read it."""
        text = (
            "Spearman's rank correlation, over heads, of each quantity of their logits with the points of "
            "accuracy that their removal costs, with 95 % bootstrap intervals; within layers, differences "
            "between layers play no part in it. Quantities that an encoding does not define are missing."
        )
        return text if len(tables.seeds) == 1 else f"{text} Each seed has its marks."


def _layers(part: pl.DataFrame) -> dict[str, Marks]:
    values = [
        row | {"quantity": row["quantity"].replace("_", " ")}
        for row in rows(part.drop("run", "setting"), "rho")
    ]
    scale = alt.Scale(domain=list(SCOPES), range=list(SCOPES.values()))
    shared = {
        "y": alt.Y("quantity:N", title=None, sort=None, axis=alt.Axis(labelLimit=160)),
        "yOffset": alt.YOffset("scope:N", scale=alt.Scale(paddingOuter=0.6)),
        "color": alt.Color("scope:N", scale=scale, title=None, legend=legend()),
    }
    domain = alt.Scale(domain=[-1, 1])
    x = alt.X("rho:Q", title="rank correlation with the drop", scale=domain)
    low = alt.X("rho_low:Q", title="rank correlation with the drop", scale=domain)
    tooltip = [
        alt.Tooltip("quantity:N"),
        alt.Tooltip("scope:N"),
        alt.Tooltip("seed:Q", format="d"),
        exact("rho", "ρ"),
        exact("rho_low", "from"),
        exact("rho_high", "to"),
    ]
    zero = alt.Chart().mark_rule(color="#9a9a9a")
    bars = alt.Chart().mark_rule(strokeWidth=1.4)
    dots = alt.Chart().mark_circle(size=34, opacity=1)
    return {
        "zero": Marks([{"rho": 0.0}], zero.encode(x=x)),
        "intervals": Marks(values, bars.encode(**shared, x=low, x2="rho_high:Q")),
        "points": Marks(values, dots.encode(**shared, x=x, tooltip=tooltip)),
    }
