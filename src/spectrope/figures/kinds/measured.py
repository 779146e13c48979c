"""Common parts of the figures of measured heads: a panel per setting and encoding, colours of layers."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import altair as alt
import polars as pl

from spectrope.figures.base import Marks, Panel, rows, span
from spectrope.figures.tables import Tables

HEIGHT = 170
ROOM = 0.25  # For words above the points, as a share of their range.
ONE_SEED = "Of several seeds the first is drawn."


def by_encoding(
    tables: Tables,
    frame: pl.DataFrame,
    draw: Callable[[pl.DataFrame], Mapping[str, Marks]],
    height: Callable[[pl.DataFrame], int] = lambda part: HEIGHT,
) -> list[Panel]:
    """A panel for each setting and encoding that the table tells of.

    Args:
        tables: All tables.
        frame: One of them.
        draw: From the rows of one panel to its layers.
        height: From the rows to pixels.
    """
    groups = frame.partition_by("setting", "encoding", as_dict=True)
    return [
        Panel(setting, encoding, draw(part), height(part))
        for setting in tables.settings
        for encoding in tables.encodings
        if (part := groups.get((setting, encoding))) is not None
    ]


def by_setting(
    tables: Tables, frame: pl.DataFrame, draw: Callable[[pl.DataFrame], Mapping[str, Marks]], height: int
) -> list[Panel]:
    """A panel for each setting that the table tells of; the arguments are those of `by_encoding`."""
    groups = frame.partition_by("setting", as_dict=True)
    return [
        Panel("", setting, draw(groups[(setting,)]), height)
        for setting in tables.settings
        if (setting,) in groups
    ]


def first_seed(frame: pl.DataFrame) -> pl.DataFrame:
    """The rows of each setting's and encoding's first seed."""
    return frame.filter(pl.col("seed") == pl.col("seed").min().over("setting", "encoding"))


def ordinal(field: str, title: str, values: list[Any], **options: Any) -> alt.Color:
    """Colour by layer or head, dark to light, explained under each panel."""
    scale = alt.Scale(domain=values, scheme=alt.SchemeParams(name="viridis", extent=[0.05, 0.85]))
    return alt.Color(f"{field}:O", title=title, scale=scale, legend=legend(**options))


def legend(symbol_size: int = 80, **options: Any) -> alt.Legend:
    """A key under the panel, also where pages have none of their own."""
    placed: dict[str, Any] = {"orient": "bottom", "direction": "horizontal", "titleOrient": "left"}
    placed |= {"padding": 0, "columns": 6, "titleFontWeight": "normal"}
    return alt.Legend(symbolSize=symbol_size, **placed, **options)


def above(values: Iterable[float]) -> alt.Scale:
    """A scale from 0 over some values, with room for words above them."""
    low, high = span(values, 1.0)
    return alt.Scale(domain=[low, high + ROOM * (high - low)], nice=False)


def worded(words: str) -> Marks:
    """A text in the upper right corner, with a proper minus sign."""
    text = alt.Chart().mark_text(align="right", baseline="top", fontSize=10, color="#5c5c5c", lineBreak="\n")
    place = {"x": alt.value("width"), "y": alt.value(0), "text": "words:N"}
    return Marks([{"words": words.replace("-", "−")}] if words else [], text.encode(**place))


def correlation_words(correlations: pl.DataFrame, unit: str) -> str:
    """Rank correlations with the drop, a line per scope: with the interval of one run, or their range.

    Args:
        correlations: Rows of one quantity.
        unit: What several runs are.
    """
    lines = []
    for scope, label in (("heads", "ρ"), ("within layers", "within layers")):
        of_scope = rows(correlations.filter(pl.col("scope") == scope), "rho")
        if len(of_scope) == 1:
            row = of_scope[0]
            lines.append(f"{label} {row['rho']:z.2f} [{row['rho_low']:z.2f}, {row['rho_high']:z.2f}]")
        elif of_scope:
            values = [row["rho"] for row in of_scope]
            lines.append(f"{label} {min(values):z.2f} to {max(values):z.2f} over {len(of_scope)} {unit}")
    return "\n".join(lines)
