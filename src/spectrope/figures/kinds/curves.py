"""Accuracy by epoch."""

import altair as alt
import polars as pl

from spectrope.figures.base import Figure, Marks, Panel, exact
from spectrope.figures.kinds.history import HEIGHT, SPLITS, history
from spectrope.figures.tables import Tables

GREY = "#5c5c5c"


class Curves(Figure, name="curves"):
    """Train and held-out accuracy per epoch for each encoding (Figures 2 and 3 of arXiv 2505.13027)."""

    title = "Accuracy by epoch"
    place = 12
    key = "encodings"

    def panels(self, tables: Tables) -> list[Panel]:
        """A panel per setting and split, with the Bayes accuracy as a rule."""
        return [
            Panel(setting, SPLITS[split], self._layers(tables, setting, split), HEIGHT)
            for setting in tables.settings
            for split in SPLITS
        ]

    def caption(self, tables: Tables) -> str:
        """How to read it."""
        text = "Epoch 0 is before training. The dashed line is the best possible accuracy."
        return text if len(tables.seeds) == 1 else f"{text} Thin lines are seeds, strong ones their mean."

    def _layers(self, tables: Tables, setting: str, split: str) -> dict[str, Marks]:
        y = alt.Y("accuracy:Q", title="accuracy, %", scale=alt.Scale(domain=[0, 100]))
        return {"ceiling": ceiling(tables, setting, "y")} | history(
            tables, setting, split, "accuracy", y, "%"
        )


def ceiling(tables: Tables, setting: str, axis: str) -> Marks:
    """A rule at the Bayes accuracy of a setting, in percent, across the axis "x" or "y"."""
    values = tables.runs.filter(pl.col("setting") == setting).select("ceiling").unique().to_dicts()
    rule = alt.Chart().mark_rule(strokeDash=[5, 3], strokeWidth=1.2, color=GREY)
    return Marks(values, rule.encode(tooltip=exact("ceiling", "Bayes accuracy, %"), **{axis: "ceiling:Q"}))
