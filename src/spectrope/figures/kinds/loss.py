"""Loss by epoch."""

import altair as alt
import polars as pl

from spectrope.figures.base import Figure, Panel, rows, span
from spectrope.figures.kinds.history import HEIGHT, SPLITS, history
from spectrope.figures.tables import Tables


class Loss(Figure, name="loss"):
    """Train and held-out cross-entropy per epoch for each encoding."""

    title = "Loss by epoch"
    place = 13
    key = "encodings"

    def panels(self, tables: Tables) -> list[Panel]:
        """A panel per setting and split; the panels of a setting share their axis."""
        return [
            Panel(setting, SPLITS[split], history(tables, setting, split, "loss", y, "nats"), HEIGHT)
            for setting, y in ((setting, self._axis(tables, setting)) for setting in tables.settings)
            for split in SPLITS
        ]

    def caption(self, tables: Tables) -> str:
        """How to read it."""
        text = "Mean cross-entropy. Epoch 0 is before training."
        return text if len(tables.seeds) == 1 else f"{text} Thin lines are seeds, strong ones their mean."

    def _axis(self, tables: Tables, setting: str) -> alt.Y:
        values = [row["loss"] for row in rows(tables.metrics.filter(pl.col("setting") == setting), "loss")]
        domain = [0.0, span(values, 0.1)[1]]
        return alt.Y("loss:Q", title="loss, nats", scale=alt.Scale(domain=domain, nice=False))
