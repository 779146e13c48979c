"""Claims 14 and 16: quantities of grokking runs over training."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import altair as alt
import polars as pl

from spectrope.figures import INK, Marks, Panel
from spectrope.study.grok_arms import course
from spectrope.study.page.extras.base import EXTRAS, Extra
from spectrope.study.quantities import Seen

HEIGHT, WIDTH = 170, 260


def progress(arm: str, columns: Mapping[str, str]) -> Callable[[Mapping[str, Seen]], list[Panel]]:
    """Columns of the progress table by step, a panel each and a line per seed.

    Args:
        arm: Whose runs.
        columns: Titles of what to draw, by column; accuracies become percent.
    """
    line = alt.Chart().mark_line(strokeWidth=1.2, color=INK, opacity=0.6)
    chart = line.encode(
        x=alt.X("step:Q", title="step"),
        y=alt.Y("value:Q", title=None, scale=alt.Scale(zero=False)),
        detail="seed:N",
    )

    def panels(seen: Mapping[str, Seen]) -> list[Panel]:
        tables = [
            (seed, table)
            for runs in seen.values()
            for (name, seed), row in runs.rows.items()
            if name == arm and (table := course(row, *columns)) is not None
        ]
        return [
            Panel("", title, {"runs": Marks(_rows(tables, column), chart)}, HEIGHT)
            for column, title in columns.items()
            if tables
        ]

    return panels


def _rows(tables: Sequence[tuple[int, pl.DataFrame]], column: str) -> list[dict[str, Any]]:
    """A column of each run's table by step."""
    factor = 100.0 if column.endswith("accuracy") else 1.0
    return [
        {"seed": seed, "step": step, "value": factor * value}
        for seed, table in tables
        for step, value in table.select("step", column).drop_nulls().iter_rows()
    ]


EXTRAS.register(
    "grok-med",
    Extra(
        "Learned from random pairs, a line per seed.",
        progress("random", {"test_loss": "test loss", "med": "MED", "unevenness": "unevenness"}),
        width=WIDTH,
    ),
)
EXTRAS.register(
    "grok-vision",
    Extra(
        "A line per seed.",
        progress("images", {"train_accuracy": "training accuracy, %", "test_accuracy": "test accuracy, %"}),
        width=WIDTH,
    ),
)
