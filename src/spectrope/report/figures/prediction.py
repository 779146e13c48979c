"""Whether the spectrum of a head says what its removal costs."""

import altair as alt
import polars as pl

from spectrope.report.figures.base import Figure, Layer, Panel, exact, rows, span
from spectrope.report.figures.measured import by_encoding, ordinal
from spectrope.report.tables import Tables

KEYS = ("run", "layer", "head")
ROOM = 0.25  # For words above the points, as a share of their range.


class Prediction(Figure, name="prediction"):
    """The Toeplitz share of each head against its drop, with the rank correlation of each run."""

    title = "Toeplitz share against drop"
    needs = "correlation"  # Only runs with both tables have one.
    width = 240
    columns = 4

    def panels(self, tables: Tables) -> list[Panel]:
        """A panel per setting and encoding with a point per head."""
        drops = tables.ablation.select(*KEYS, "drop")
        known = tables.correlation.select("run").unique()
        heads = tables.spectrum.join(known, on="run").join(drops, on=KEYS)
        found = tables.correlation.filter(pl.col("quantity") == "toeplitz")
        return by_encoding(tables, heads, lambda part: _layers(part, found))

    def caption(self, tables: Tables) -> str:
        """How to read it."""
        return (
            "A point per head: the share of lags in its logits beside row effects, against the points of "
            "accuracy that its removal costs. ρ is Spearman's rank correlation over heads with its 95 % "
            "bootstrap interval; within layers, differences between layers play no part in it."
        )


def _layers(part: pl.DataFrame, correlations: pl.DataFrame) -> dict[str, Layer]:
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
    low, high = span([row["drop"] for row in values], 1.0)
    room = alt.Scale(domain=[low, high + ROOM * (high - low)], nice=False)
    y = alt.Y("drop:Q", title="drop, points", scale=room)
    drawn = dots.encode(x=x, y=y, color=colour, tooltip=tooltip)
    words = correlations.join(part.select("run").unique(), on="run")
    text = alt.Chart().mark_text(align="right", baseline="top", fontSize=10, color="#5c5c5c", lineBreak="\n")
    place = {"x": alt.value("width"), "y": alt.value(0), "text": "words:N"}
    return {"heads": Layer(values, drawn), "words": Layer(_words(words), text.encode(**place))}


def _words(correlations: pl.DataFrame) -> list[dict[str, str]]:
    """One text for the panel, a line per scope: the interval of one run, or the range over several."""
    lines = []
    for scope, label in (("heads", "ρ"), ("within layers", "within layers")):
        found = rows(correlations.filter(pl.col("scope") == scope), "rho")
        if len(found) == 1:
            row = found[0]
            lines.append(f"{label} {row['rho']:.2f} [{row['rho_low']:.2f}, {row['rho_high']:.2f}]")
        elif found:
            values = [row["rho"] for row in found]
            lines.append(f"{label} {min(values):.2f} to {max(values):.2f} over {len(found)} seeds")
    return [{"words": "\n".join(lines).replace("-", "−")}] if lines else []
