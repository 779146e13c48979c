"""Claim 8: how far rotation contracts the logits, against speed and head by head."""

from collections.abc import Mapping, Sequence

import altair as alt

from spectrope.figures import INK, Marks, Panel
from spectrope.study.claims.contraction import OWN, contraction
from spectrope.study.page.extras.base import DOTS, EXTRAS, HEIGHT, Extra, cloud, level_line
from spectrope.study.quantities import Seen, speed


def contraction_panels(seen: Mapping[str, Seen]) -> list[Panel]:
    """The ratio of norms against speed, then by head."""
    ratio = ("mean log ratio of spectral norms, with over without rotation", contraction)
    return [*cloud("by run", seen, ratio, ("speed, %", speed), by_base), *by_head(seen)]


def by_base(bases: Sequence[str]) -> alt.Color:
    """Colour by RoPE's base, dark to light."""
    scale = alt.Scale(domain=list(bases), scheme=alt.SchemeParams(name="viridis", extent=[0.0, 0.9]))
    return alt.Color("arm:O", scale=scale, legend=alt.Legend(title="base", **DOTS))


def by_head(seen: Mapping[str, Seen]) -> list[Panel]:
    """The ratio of each head under RoPE itself, a point per head and run."""
    dots = (
        alt.Chart()
        .mark_circle(size=22, opacity=0.5, color=INK)
        .encode(
            x=alt.X("layer:N", title="layer, heads side by side", axis=alt.Axis(labelAngle=0)),
            xOffset="head:N",
            y=alt.Y("ratio:Q", title="ratio of spectral norms", scale=alt.Scale(type="log", nice=False)),
        )
    )
    panels = []
    for condition, runs in seen.items():
        rows = [
            {"layer": layer, "head": head, "ratio": ratio}
            for (arm, _), row in runs.rows.items()
            if arm == OWN and "spectrum" in row.tables
            for layer, head, ratio in row.tables["spectrum"]
            .select("layer", "head", "contraction_spectral")
            .drop_nulls()
            .iter_rows()
        ]
        if rows:
            layers = {"one": level_line(1.0), "heads": Marks(rows, dots)}
            panels.append(Panel("by head", condition, layers, HEIGHT))
    return panels


EXTRAS.register(
    "contraction",
    Extra(
        "Above, a point per run, coloured by RoPE's base; below, a point per head and run at RoPE's own "
        "base, 10,000: rotation contracts below 1.",
        contraction_panels,
    ),
)
