"""The deposit rule, layer by layer."""

from typing import Any

import altair as alt
import polars as pl

from spectrope.figures.base import Figure, Marks, Panel, colour, emphasised, exact, rows, span
from spectrope.figures.kinds.measured import by_setting
from spectrope.figures.tables import Tables
from spectrope.lab import DEFAULT_RULE

HEIGHT = 240
SHAPE = alt.Shape("deposit:N", scale=alt.Scale(domain=[False, True], range=["circle", "square"]), legend=None)
ENDS = ("gap", "gap_low", "share", "share_low")


class DepositPlane(Figure, name="deposit"):
    """Gap and share of the strongest head of each layer, with the bounds that the deposit rule asks for."""

    title = "Deposit: gap and share of the strongest head"
    place = 23
    needs = "deposit"
    key = "encodings"

    def panels(self, tables: Tables) -> list[Panel]:
        """A panel per setting with a mark per run and layer."""
        return by_setting(tables, tables.deposit, lambda part: _layers(tables, part), HEIGHT)

    def caption(self, tables: Tables) -> str:
        """How to read it."""
        rule, undefined = DEFAULT_RULE, tables.deposit["share"].null_count()
        text = (
            "For each layer, the head that was strongest on one half of the examples: by how much its drop "
            "on the other half exceeds that of every other head, or 0 (gap), and its share of the layer's "
            "total drop. A line runs from the estimates (hollow) to their 95 % lower bounds (filled, with "
            "the layer's number). A deposit (square) has both bounds in the shaded corner, gap at least "
            f"{rule.gap:g} points and share at least {rule.share:g}, and p at most 0.05 after Holm's "
            "correction over layers; a circle in that corner misses the last."
        )
        if undefined == 0:
            return text
        return f"{text} {undefined} of {len(tables.deposit)} layers drop too little for a share."


def _layers(tables: Tables, part: pl.DataFrame) -> dict[str, Marks]:
    values = rows(part.drop("run", "setting"), *ENDS)
    least, most = span([row[end] for row in values for end in ENDS[:2]], 2 * DEFAULT_RULE.gap)
    gaps = alt.Scale(domain=[least, most], nice=False)
    shared: dict[str, Any] = {"color": colour(tables.encodings)}
    corner = {"gap": DEFAULT_RULE.gap, "gap_end": most, "share": DEFAULT_RULE.share, "share_end": 1}
    ground = alt.Chart().mark_rect(color="#000000", opacity=0.05)
    tails, hollow = alt.Chart().mark_rule(strokeWidth=1.1), alt.Chart().mark_point(size=22, strokeWidth=1.1)
    dots = alt.Chart().mark_point(size=44, filled=True)
    words = alt.Chart().mark_text(align="left", dx=6, fontSize=9)
    ends = {"x2": "gap:Q", "y2": "share:Q"}
    estimate, bound = _place("gap", "share", gaps), _place("gap_low", "share_low", gaps)
    return {
        "corner": Marks([corner], ground.encode(**estimate, x2="gap_end:Q", y2="share_end:Q")),
        "tails": Marks(values, tails.encode(**shared, **bound, **ends, opacity=emphasised(0.6))),
        "estimates": Marks(values, hollow.encode(**shared, **estimate, opacity=emphasised(0.8))),
        "bounds": Marks(
            values,
            dots.encode(**shared, **bound, shape=SHAPE, tooltip=_tooltip(), opacity=emphasised()),
        ),
        "layers": Marks(values, words.encode(**shared, **bound, text="layer:Q", opacity=emphasised())),
    }


def _place(gap: str, share: str, gaps: alt.Scale) -> dict[str, Any]:
    shares = alt.Scale(domain=[0, 1])
    return {
        "x": alt.X(f"{gap}:Q", title="gap, points", scale=gaps),
        "y": alt.Y(f"{share}:Q", title="share of the layer's drops", scale=shares),
    }


def _tooltip() -> list[alt.Tooltip]:
    whole = [alt.Tooltip(f"{name}:Q", format="d") for name in ("seed", "layer", "head")]
    numbers = [
        exact("drop", "drop, points"),
        exact("gap", "gap, points"),
        exact("gap_low", "at least"),
        exact("share", "share"),
        exact("share_low", "at least"),
    ]
    return [alt.Tooltip("encoding:N"), *whole, *numbers, alt.Tooltip("deposit:N")]
