"""What an extra figure is, and what several of them share: intervals, axes, keys and colours of arms."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
import numpy as np

from spectrope.core import Registry
from spectrope.figures import QUIET, Marks, Panel, styles
from spectrope.stats import t_interval
from spectrope.study.arms import NAMES
from spectrope.study.predictions import Values
from spectrope.study.quantities import Quantity, Seen

EXTRAS: Registry["Extra"] = Registry("extra figure", "spectrope.study.page.extras")
HEIGHT = 220  # Of a panel, in pixels.
ACCURACY = {"title": "accuracy, %", "scale": alt.Scale(domain=[0, 100])}
DOTS: dict[str, Any] = {"symbolType": "circle", "symbolSize": 80, "labelLimit": 200}  # A key of dots.
NAMES_AND_BLEND = NAMES | {"blend": "αG_e + J"}


@dataclass(frozen=True)
class Extra:
    """A figure that a claim shows beside its parts; registered in `EXTRAS` under the claim's name.

    Args:
        caption: How to read it.
        panels: Draws the claim's rows, by condition; no panels where there is nothing to draw.
        width: Of a panel, in pixels.
        columns: Panels side by side.
    """

    caption: str
    panels: Callable[[Mapping[str, Seen]], list[Panel]]
    width: int = 320
    columns: int = 3


def interval_of(values: Values) -> dict[str, float] | None:
    """Mean and 95 % t interval over seeds, as a row; None for fewer than two seeds."""
    if len(values) < 2:
        return None
    interval = t_interval(np.array(list(values.values())))
    return {"estimate": interval.estimate, "low": interval.low, "high": interval.high}


def level_line(value: float) -> Marks:
    """A dashed line across a panel."""
    return Marks(
        [{"level": value}], alt.Chart().mark_rule(strokeDash=[4, 3], color=QUIET).encode(y="level:Q")
    )


def arm_label(arm: str) -> str:
    """An arm in words, such as "RoPE, dropout 0.3" for "rope/0.3"."""
    name, _, rate = arm.partition("/")
    return NAMES_AND_BLEND.get(name, name) + (f", dropout {rate}" if rate else "")


def by_arm(arms: Sequence[str]) -> alt.Color:
    """Colour by arm; encodings have the same one in every figure."""
    scale = alt.Scale(
        domain=[arm_label(arm) for arm in arms], range=[style.colour for style in styles(arms).values()]
    )
    return alt.Color("arm:N", scale=scale, legend=alt.Legend(title=None, **DOTS))


def cloud(
    group: str,
    seen: Mapping[str, Seen],
    across: tuple[str, Quantity],
    up: tuple[str, Quantity],
    colour: Callable[[Sequence[str]], alt.Color] = by_arm,
) -> list[Panel]:
    """One quantity against another, a panel per condition and a point per run.

    Args:
        group: Heading of the panels.
        seen: The claim's rows by condition.
        across: Title and quantity of the horizontal axis.
        up: Those of the vertical one.
        colour: From the names of the arms to their colours.
    """
    place = {
        "x": alt.X("x:Q", title=across[0], scale=alt.Scale(zero=False)),
        "y": alt.Y("y:Q", title=up[0], scale=alt.Scale(zero=False)),
    }
    dots = alt.Chart().mark_circle(size=45, opacity=0.9)
    panels = []
    for condition, runs in seen.items():
        if points := _points(runs, across[1], up[1]):
            chart = dots.encode(**place, color=colour(runs.arms))
            panels.append(Panel(group, condition, {"runs": Marks(points, chart)}, HEIGHT))
    return panels


def _points(runs: Seen, across: Quantity, up: Quantity) -> list[dict[str, Any]]:
    """A row for each run that has both quantities."""
    points = []
    for arm in runs.arms:
        ups = runs.values(arm, up)
        points += [
            {"arm": arm_label(arm), "x": value, "y": ups[seed]}
            for seed, value in runs.values(arm, across).items()
            if seed in ups
        ]
    return points
