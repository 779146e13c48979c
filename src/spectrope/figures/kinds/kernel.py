"""Lag effect of each head on its logits."""

import altair as alt
import polars as pl

from spectrope.figures.base import Figure, Marks, Panel, exact, rows
from spectrope.figures.kinds.measured import ONE_SEED, by_encoding, first_seed, ordinal
from spectrope.figures.tables import Tables


class KernelOverLag(Figure, name="kernel"):
    """The lag effect of every head, as measured on held-out examples."""

    title = "Kernel over lag"
    place = 32
    needs = "kernel"
    width = 240
    columns = 4

    def panels(self, tables: Tables) -> list[Panel]:
        """A panel per setting and encoding with a line per head."""
        return by_encoding(tables, first_seed(tables.kernel), _layers)

    def caption(self, tables: Tables) -> str:
        """How to read it."""
        text = (
            "One line per head: the effect of the lag on its logits, after removal of an effect of the "
            "query, which softmax ignores; in logit units, with mean 0 over lags, averaged over examples. "
            "The line of a head that attends only by content is flat."
        )
        return text if len(tables.seeds) == 1 else f"{text} {ONE_SEED}"


def _layers(part: pl.DataFrame) -> dict[str, Marks]:
    values = rows(part.drop("run", "setting"), "effect")
    x = alt.X("lag:Q", title="lag, positions", scale=alt.Scale(nice=False))
    y = alt.Y("effect:Q", title="effect, logits")
    colour = ordinal("layer", "layer", sorted(set(part["layer"])))
    whole = [alt.Tooltip(f"{name}:Q", format="d") for name in ("layer", "head", "lag")]
    numbers = [exact("effect", "effect"), exact("effect_low", "from"), exact("effect_high", "to")]
    line = alt.Chart().mark_line(strokeWidth=1.1, opacity=0.75)
    drawn = line.encode(x=x, y=y, color=colour, detail="head:N", tooltip=[*whole, *numbers])
    return {"heads": Marks(values, drawn)}
