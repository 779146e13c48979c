"""Accuracy at each learning rate of a grid."""

import altair as alt
import polars as pl

from spectrope.figures.base import Figure, Marks, Panel, colour, dash, emphasised, exact
from spectrope.figures.tables import Tables

HEIGHT = 200


class Rates(Figure, name="rates"):
    """Accuracy at every learning rate that `compare --tune` tried for an encoding."""

    title = "Learning rates tried"
    place = 11
    needs = "tuning"
    key = "encodings"

    def panels(self, tables: Tables) -> list[Panel]:
        """A panel per setting that was tuned."""
        return [
            Panel("", setting, self._layers(tables, part), HEIGHT)
            for setting in tables.settings
            if not (part := tables.tuning.filter(pl.col("setting") == setting)).is_empty()
        ]

    def caption(self, tables: Tables) -> str:
        """How to read it."""
        grids = tables.tuning.unique(["setting", "encoding", "rate"])
        return (
            "Accuracy on training examples that were held out from the trials. The filled mark is the "
            "chosen rate, with which the runs of the same setting were trained. The same multiples of one "
            "rate were tried "
            f"for all: {len(grids)} trials, {grids['seconds'].sum():.0f} s of training."
        )

    def _layers(self, tables: Tables, part: pl.DataFrame) -> dict[str, Marks]:
        # Seeds share the grid of the first.
        grid = part.unique(["encoding", "rate"]).sort("encoding", "rate")
        values = grid.select(
            "encoding", "rate", "chosen", "seconds", accuracy=pl.col("accuracy") * 100
        ).to_dicts()
        shared = {
            "x": alt.X("rate:Q", title="learning rate", scale=alt.Scale(type="log")),
            "y": alt.Y("accuracy:Q", title="accuracy, %", scale=alt.Scale(domain=[0, 100])),
            "color": colour(tables.encodings),
            "tooltip": [
                alt.Tooltip("encoding:N"),
                exact("rate", "learning rate", ".2g"),
                exact("accuracy", "accuracy, %"),
                exact("seconds", "training, s", ".0f"),
            ],
        }
        line, point = alt.Chart().mark_line(strokeWidth=1.5), alt.Chart().mark_point(size=40)
        chosen = [value for value in values if value["chosen"]]
        best = alt.Chart().mark_point(size=90, filled=True)
        return {
            "lines": Marks(
                values, line.encode(**shared, strokeDash=dash(tables.encodings), opacity=emphasised(0.8))
            ),
            "trials": Marks(values, point.encode(**shared, opacity=emphasised(0.8))),
            "chosen": Marks(chosen, best.encode(**shared, opacity=emphasised())),
        }
