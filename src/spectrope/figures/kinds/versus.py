"""Ordered drops of every encoding, beside those of RoPE."""

import altair as alt
import polars as pl

from spectrope.figures.base import Figure, Marks, Panel, colour, exact, rows, span
from spectrope.figures.tables import Tables

HEIGHT = 150
REFERENCE = "rope"  # What every other encoding is drawn beside.
ENDS = ("drop", "low", "high")


class Versus(Figure, name="versus"):
    """Ordered drops of each encoding beside those of RoPE (Figures 4 and 8 of arXiv 2505.13027)."""

    title = "Ordered drops of heads"
    place = 22
    needs = "ablation"
    key = "encodings"
    width = 200
    columns = 4

    def panels(self, tables: Tables) -> list[Panel]:
        """A panel per setting and encoding other than RoPE; those of a setting share their axes."""
        heads = tables.ablation.drop_nulls("drop").with_columns(_rank().alias("rank"))
        groups = heads.partition_by("setting", "encoding", as_dict=True)
        panels = []
        for setting, encoding in groups:
            if encoding == REFERENCE:
                continue
            pair = [groups[setting, name] for name in (REFERENCE, encoding) if (setting, name) in groups]
            axes = _axes(heads.filter(pl.col("setting") == setting))
            panels.append(Panel(setting, encoding, _layers(tables, pl.concat(pair), axes), HEIGHT))
        return sorted(panels, key=lambda panel: _place(tables, panel))

    def caption(self, tables: Tables) -> str:
        """How to read it."""
        drawn = REFERENCE in tables.encodings
        beside = f"; the drops of {REFERENCE} are repeated in every panel of their setting" if drawn else ""
        text = (
            "The drops of all heads of a model from the largest to the smallest, with 95 % intervals over "
            f"examples{beside}. A deposit is a first point far above the second."
        )
        return text if len(tables.seeds) == 1 else f"{text} Each seed has a line."


def _rank() -> pl.Expr:
    """The place of each head among those of its run, 1 for the largest drop."""
    return pl.col("drop").rank("ordinal", descending=True).over("run")


def _place(tables: Tables, panel: Panel) -> tuple[int, int]:
    return tables.settings.index(panel.group), tables.encodings.index(panel.title)


def _axes(heads: pl.DataFrame) -> dict[str, alt.X | alt.Scale]:
    values = rows(heads, *ENDS)
    most = max([1, *(row["rank"] for row in values)])
    ranks = alt.Scale(domain=[0, most + 1], nice=False)
    return {
        "x": alt.X("rank:Q", title="head, by drop", scale=ranks, axis=alt.Axis(format="d", tickMinStep=1)),
        "scale": alt.Scale(domain=span([row[end] for row in values for end in ENDS], 1.0), nice=False),
    }


def _layers(tables: Tables, pair: pl.DataFrame, axes: dict) -> dict[str, Marks]:
    values = rows(pair.drop("run", "setting", "intact", "ablated").sort("encoding", "seed", "rank"), *ENDS)
    shared = {"x": axes["x"], "color": colour(tables.encodings), "detail": "seed:N"}
    drop, low = (alt.Y(f"{end}:Q", title="drop, points", scale=axes["scale"]) for end in ("drop", "low"))
    whole = [alt.Tooltip(f"{name}:Q", format="d") for name in ("seed", "layer", "head")]
    numbers = [exact("drop", "drop, points"), exact("low", "from"), exact("high", "to")]
    tooltip = [alt.Tooltip("encoding:N"), *whole, *numbers]
    return {
        "lines": Marks(values, alt.Chart().mark_line(strokeWidth=1, opacity=0.6).encode(**shared, y=drop)),
        "intervals": Marks(values, alt.Chart().mark_rule(strokeWidth=1).encode(**shared, y=low, y2="high:Q")),
        "heads": Marks(
            values, alt.Chart().mark_circle(size=16, opacity=1).encode(**shared, y=drop, tooltip=tooltip)
        ),
    }
