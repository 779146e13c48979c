"""The position-position term of each head over its Toeplitz projection."""

import altair as alt
import polars as pl

from spectrope.figures.base import Figure, Marks, Panel, exact, rows
from spectrope.figures.kinds.measured import ONE_SEED, by_encoding, first_seed, ordinal
from spectrope.figures.tables import Tables

DESIGN = "balanced"


class TermKernel(Figure, name="term_kernel"):
    """Lag effect of the position-position term of the first paper, with the range of its entries."""

    title = "Kernel of the position-position term"
    place = 36
    needs = "term_kernel"
    width = 240
    columns = 4

    def panels(self, tables: Tables) -> list[Panel]:
        """A panel per setting and encoding with a line and a band per head."""
        chosen = tables.term_kernel.filter(pl.col("design") == DESIGN)
        return by_encoding(tables, first_seed(chosen), _layers)

    def caption(self, tables: Tables) -> str:
        """How to read it."""
        text = (
            "A line per head: the Toeplitz projection of its position-position term, row effects removed, in "
            "logit units, in the balanced design. The band around it holds the term's own entries at each "
            "lag; if it has no width, the term is Toeplitz, as Assumption 3.2 states."
        )
        return text if len(tables.seeds) == 1 else f"{text} {ONE_SEED}"


def _layers(part: pl.DataFrame) -> dict[str, Marks]:
    values = rows(part.drop("run", "setting", "design"), "effect", "entry_low", "entry_high")
    x = alt.X("lag:Q", title="lag, positions", scale=alt.Scale(nice=False))
    colour = ordinal("layer", "layer", sorted(set(part["layer"])))
    whole = [alt.Tooltip(f"{name}:Q", format="d") for name in ("layer", "head", "lag")]
    numbers = {"effect": "effect", "entry_low": "least entry", "entry_high": "greatest entry"}
    tooltip = [*whole, *(exact(name, title, ".3g") for name, title in numbers.items())]
    y = alt.Y("effect:Q", title="effect, logits")
    band = (
        alt.Chart()
        .mark_area(opacity=0.12)
        .encode(
            x=x,
            y=alt.Y("entry_low:Q", title="effect, logits"),
            y2="entry_high:Q",
            color=colour,
            detail="head:N",
        )
    )
    line = alt.Chart().mark_line(strokeWidth=1.1, opacity=0.8)
    return {
        "entries": Marks(values, band),
        "heads": Marks(values, line.encode(x=x, y=y, color=colour, detail="head:N", tooltip=tooltip)),
    }
