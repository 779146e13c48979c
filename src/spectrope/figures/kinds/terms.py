"""Terms of content and position in the logits of heads (Eq. 8 of the paper), layer by layer."""

import altair as alt
import polars as pl

from spectrope.figures.base import Figure, Marks, Panel, exact, rows
from spectrope.figures.kinds.measured import HEIGHT
from spectrope.figures.tables import Tables

COLOURS = {
    "content-content": "#1a65c8",
    "content-position": "#7fb0e6",
    "position-content": "#f0a56f",
    "position-position": "#d84a02",
    "bias": "#7a3fa0",
    "interaction": "#8c8c8c",
}
KEY = alt.Legend(orient="bottom", columns=2, padding=0, symbolSize=80, symbolType="square")


class TermsFigure(Figure, name="terms"):
    """Share of each term of the paper's Eq. 8 in the energy of logits, stacked, with their covariance."""

    title = "Terms of content and position in logits"
    place = 35
    needs = "terms"
    width = 200
    columns = 4

    def panels(self, tables: Tables) -> list[Panel]:
        """A panel per setting, encoding and design, with a bar per layer."""
        means = tables.terms.group_by("setting", "encoding", "design", "layer", "term").agg(
            pl.col("share", "covariance", "toeplitz").mean()
        )
        groups = means.partition_by("setting", "encoding", "design", as_dict=True)
        designs = sorted(set(means["design"]), reverse=True)  # Held-out examples first.
        return [
            Panel(setting, f"{encoding}, {design}", _bars(groups[key]), HEIGHT)
            for setting in tables.settings
            for encoding in tables.encodings
            for design in designs
            if (key := (setting, encoding, design)) in groups
        ]

    def caption(self, tables: Tables) -> str:
        """How to read it."""
        return (
            "Energy of the terms of logits over that of the logits, row means removed, as means over heads "
            "and seeds. If a bar ends below or above 1, the rest is due to terms that are not orthogonal; "
            "the tooltip shows each term's covariance with the others. Interaction is the sum of all "
            "products with the remainder that no sum of token and position explains. Held-out examples "
            "confound content with "
            "position; in the balanced design they are independent."
        )


def _bars(part: pl.DataFrame) -> dict[str, Marks]:
    order = {name: place for place, name in enumerate(COLOURS)}
    values = rows(part.drop("setting", "encoding"), "share")
    values = [row | {"order": order[row["term"]]} for row in values]
    present = [name for name in COLOURS if name in set(part["term"])]
    scale = alt.Scale(domain=present, range=[COLOURS[name] for name in present])
    numbers = [exact("share", "share", ".4f"), exact("covariance", "covariance", ".4f")]
    tooltip = [alt.Tooltip("term:N"), alt.Tooltip("layer:Q", format="d"), *numbers]
    bar = (
        alt.Chart()
        .mark_bar(opacity=1)
        .encode(
            x=alt.X("layer:O", title="layer", axis=alt.Axis(labelAngle=0)),
            y=alt.Y("share:Q", title="share of energy", stack="zero"),
            color=alt.Color("term:N", scale=scale, title=None, legend=KEY),
            order=alt.Order("order:Q"),
            tooltip=[*tooltip, exact("toeplitz", "Toeplitz share")],
        )
    )
    line = alt.Chart().mark_rule(strokeDash=[3, 3], strokeWidth=1, color="#5c5c5c")
    return {
        "bars": Marks(values, bar),
        "whole": Marks([{"share": 1.0}], line.encode(y=alt.Y("share:Q", title="share of energy"))),
    }
