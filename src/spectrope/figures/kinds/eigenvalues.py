"""Eigenvalues of a head's Toeplitz part, compared with its symbol."""

from typing import Any

import altair as alt
import numpy as np
import polars as pl

from spectrope.figures.base import Figure, Marks, Panel, exact, rows
from spectrope.figures.kinds.measured import ONE_SEED, by_encoding, first_seed
from spectrope.figures.tables import Tables

BINS, ROOM = 12, 1.45  # Height of the panel over that of its highest bar, for words.
KEYS = ("run", "layer", "head")


class Eigenvalues(Figure, name="eigenvalues"):
    """A histogram of eigenvalues, and the counts that Szegő's theorem leads one to expect."""

    title = "Eigenvalues and the symbol"
    needs = "eigenvalues"
    width = 240
    columns = 4

    def panels(self, tables: Tables) -> list[Panel]:
        """A panel per setting and encoding: its head with the largest Toeplitz share."""
        shares = first_seed(tables.spectrum).filter(pl.col("toeplitz").is_finite())
        top = shares.filter(pl.col("toeplitz") == pl.col("toeplitz").max().over("run")).unique("run")
        chosen = tables.eigenvalues.join(top.select(*KEYS), on=KEYS).filter(pl.col("kind") == "eigenvalue")
        distances = tables.szego.filter(pl.col("kind") == "eigenvalue")
        return by_encoding(tables, chosen, lambda part: _layers(part, distances))

    def caption(self, tables: Tables) -> str:
        """How to read it."""
        text = (
            "For each encoding, the head with the largest Toeplitz share: the Toeplitz matrix of its mean "
            "lag effects, extended evenly to future lags if attention is causal. Bars count "
            "its eigenvalues; lines are the counts that its symbol has at as many uniform angles. The "
            "distance is the Wasserstein distance, as a share of the symbol's range. It decreases like 1/n "
            "if the lags decay, so that Szegő's theorem applies."
        )
        return text if len(tables.seeds) == 1 else f"{text} {ONE_SEED}"


def _layers(part: pl.DataFrame, distances: pl.DataFrame) -> dict[str, Marks]:
    values = rows(part, "value", "symbol")
    both = [row[side] for side in ("value", "symbol") for row in values]
    edges = np.histogram_bin_edges(both, BINS)
    counts, expected = (
        np.histogram([row[side] for row in values], edges)[0].tolist() for side in ("value", "symbol")
    )
    bins = [
        {"low": low, "high": high, "eigenvalues": count, "expected": other}
        for low, high, count, other in zip(
            edges[:-1].tolist(), edges[1:].tolist(), counts, expected, strict=True
        )
    ]
    x = alt.X("low:Q", title="eigenvalue, logit units", scale=alt.Scale(zero=False, nice=False))
    room = alt.Scale(domain=[0, ROOM * max(counts + expected)], nice=False)
    y = {name: alt.Y(f"{name}:Q", title="count", scale=room) for name in ("eigenvalues", "expected")}
    foot = alt.Y2Datum(0)
    tooltip = [
        exact("low", "from", ".3~g"),
        exact("high", "to", ".3~g"),
        exact("eigenvalues", "eigenvalues", "d"),
        exact("expected", "symbol", "d"),
    ]
    bars = alt.Chart().mark_bar(color="#9fb8d8", binSpacing=1)
    lines = alt.Chart().mark_rule(color="#1d1d1b", strokeWidth=1.6)
    text = alt.Chart().mark_text(align="right", baseline="top", fontSize=10, color="#5c5c5c", lineBreak="\n")
    place: dict[str, Any] = {"x": alt.value("width"), "y": alt.value(0), "text": "words:N"}
    return {
        "eigenvalues": Marks(
            bins, bars.encode(x=x, x2="high:Q", y=y["eigenvalues"], y2=foot, tooltip=tooltip)
        ),
        "symbol": Marks(bins, lines.encode(x=x, x2="high:Q", y=y["expected"])),
        "words": Marks(_words(part, distances), text.encode(**place)),
    }


def _words(part: pl.DataFrame, distances: pl.DataFrame) -> list[dict[str, str]]:
    """Which head is drawn, its distance, and whether the theorem applies."""
    row = distances.join(part.select(*KEYS).unique(), on=KEYS).row(0, named=True)
    lines = [f"layer {row['layer']}, head {row['head']}"]
    if row["relative"] is not None:
        lines.append(f"distance {100 * row['relative']:.1f} % of the range")
    if not row["theorem_applies"]:
        lines.append(f"lags do not decay: {100 * row['tail_share']:.0f} % beyond n/2")
    return [{"words": "\n".join(lines)}]
