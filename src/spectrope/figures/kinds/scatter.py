"""Every spectral quantity of each head against the drop from its removal."""

import altair as alt
import polars as pl

from spectrope.figures.base import Figure, Marks, Panel, colour, emphasised, exact, rows
from spectrope.figures.kinds.measured import HEIGHT, above, correlation_words, worded
from spectrope.figures.tables import Tables

KEYS = ("run", "layer", "head")
ABOUT = ("setting", "encoding", "seed", *KEYS)


class Scatter(Figure, name="scatter"):
    """A panel per quantity with the heads of all encodings, beside their drops."""

    title = "Spectral quantities against drop"
    place = 31
    needs = "correlation"
    key = "encodings"
    width = 220
    columns = 4

    def panels(self, tables: Tables) -> list[Panel]:
        """A panel per setting and quantity with a point per head."""
        heads = _quantities(tables).join(tables.ablation.select(*KEYS, "drop"), on=KEYS)
        panels = []
        for (setting, quantity), part in tables.correlation.group_by(
            "setting", "quantity", maintain_order=True
        ):
            points = heads.filter(pl.col("quantity") == quantity).join(part.select("run").unique(), on="run")
            layers = _layers(points.drop("setting"), part, tables.encodings)
            panels.append(Panel(str(setting), str(quantity).replace("_", " "), layers, HEIGHT))
        return sorted(panels, key=lambda panel: tables.settings.index(panel.group))

    def caption(self, tables: Tables) -> str:
        """How to read it."""
        return (
            "A point per head. ρ is Spearman's rank correlation over the heads of one run, with its 95 % "
            "bootstrap interval, or its range over runs; within layers, differences between layers play no "
            "part in it."
        )


def _quantities(tables: Tables) -> pl.DataFrame:
    """A row per head and quantity: those of table "spectrum", and the share of each band of frequencies."""
    names = [name for name in tables.correlation["quantity"].unique() if name in tables.spectrum.columns]
    long = [tables.spectrum.unpivot(names, index=ABOUT, variable_name="quantity", value_name="value")]
    if not tables.bands.is_empty():
        named = tables.bands.with_columns(quantity=pl.format("band_{}", "band"), value="share")
        long.append(named.select(*ABOUT, "quantity", "value"))
    return pl.concat(long, how="vertical_relaxed")


def _layers(heads: pl.DataFrame, correlations: pl.DataFrame, encodings: list[str]) -> dict[str, Marks]:
    values = rows(heads, "value", "drop")
    dots = (
        alt.Chart()
        .mark_point(size=24, strokeWidth=1.4)
        .encode(
            x=alt.X("value:Q", title=None, scale=alt.Scale(zero=False)),
            y=alt.Y("drop:Q", title="drop, points", scale=above(row["drop"] for row in values)),
            color=colour(encodings),
            opacity=emphasised(0.8),
            tooltip=[
                alt.Tooltip("encoding:N"),
                *(alt.Tooltip(f"{name}:Q", format="d") for name in ("seed", "layer", "head")),
                exact("value", "value", ".3g"),
                exact("drop", "drop, points"),
            ],
        )
    )
    return {"heads": Marks(values, dots), "words": worded(correlation_words(correlations, "runs"))}
