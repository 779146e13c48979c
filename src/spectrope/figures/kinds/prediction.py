"""Toeplitz share of each head against its drop."""

import altair as alt
import polars as pl

from spectrope.figures.base import Figure, Marks, Panel, exact, rows
from spectrope.figures.kinds.measured import above, by_encoding, correlation_words, ordinal, worded
from spectrope.figures.tables import Tables

KEYS = ("run", "layer", "head")


class PredictionFigure(Figure, name="prediction"):
    """The Toeplitz share of each head against its drop, with the rank correlation of each run."""

    title = "Toeplitz share against drop"
    place = 30
    needs = "correlation"  # Only runs with both tables have one.
    width = 240
    columns = 4

    def panels(self, tables: Tables) -> list[Panel]:
        """A panel per setting and encoding with a point per head."""
        drops = tables.ablation.select(*KEYS, "drop")
        known = tables.correlation.select("run").unique()
        heads = tables.spectrum.join(known, on="run").join(drops, on=KEYS)
        correlations = tables.correlation.filter(pl.col("quantity") == "toeplitz")
        return by_encoding(tables, heads, lambda part: _layers(part, correlations))

    def caption(self, tables: Tables) -> str:
        """How to read it."""
        return (
            "One point per head: the Toeplitz share of its logits, without row effects, against the drop in "
            "accuracy from its removal, in points. ρ is Spearman's rank correlation over heads, with its "
            "95 % bootstrap interval for one seed, or its range over the seeds that have one; within layers, "
            "differences between layers are ignored."
        )


def _layers(part: pl.DataFrame, correlations: pl.DataFrame) -> dict[str, Marks]:
    values = rows(part.drop("setting"), "toeplitz")
    x = alt.X("toeplitz:Q", title="Toeplitz share", scale=alt.Scale(domain=[0, 1]))
    colour = ordinal("layer", "layer", sorted(set(part["layer"])), symbolType="circle", symbol_size=50)
    whole = [alt.Tooltip(f"{name}:Q", format="d") for name in ("seed", "layer", "head")]
    shares = [
        exact("toeplitz", "share", ".3f"),
        exact("toeplitz_low", "from", ".3f"),
        exact("toeplitz_high", "to", ".3f"),
    ]
    dots = alt.Chart().mark_circle(size=38, opacity=0.85)
    tooltip = [*whole, *shares, exact("drop", "drop, points")]
    y = alt.Y("drop:Q", title="drop, points", scale=above(row["drop"] for row in values))
    drawn = dots.encode(x=x, y=y, color=colour, tooltip=tooltip)
    words = correlations.join(part.select("run").unique(), on="run")
    return {"heads": Marks(values, drawn), "words": worded(correlation_words(words, "seeds"))}
