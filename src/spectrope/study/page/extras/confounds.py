"""Claim 11: from `controlled` to `released`, one switch after another."""

from collections.abc import Collection, Mapping
from statistics import fmean
from typing import Any

import altair as alt

from spectrope.figures import INK, Marks, Panel
from spectrope.study.claims.confounds import ConfoundEffects, Confounds
from spectrope.study.page.extras.base import EXTRAS, Extra, level_line
from spectrope.study.predictions import Values
from spectrope.study.quantities import Seen

STEP = "#8aa6c1"


def waterfalls(seen: Mapping[str, Seen]) -> list[Panel]:
    """A waterfall for each quantity that has both ends."""
    return [
        waterfall(effects) for runs in seen.values() for effects in Confounds().effects(runs) if effects.whole
    ]


def waterfall(effects: ConfoundEffects) -> Panel:
    """The effect of each switch alone, what they do together beyond their sum, and the whole difference.

    Steps are means over the seeds that have all of them. Where some switch was not thrown, because the whole
    difference is not worth explaining, the difference stands alone.
    """
    bars = _bars(effects)
    chart = (
        alt.Chart()
        .mark_bar(size=16)
        .encode(
            x=alt.X("step:N", sort=[bar["step"] for bar in bars], title=None, axis=alt.Axis(labelAngle=-35)),
            y=alt.Y("from:Q", title="points beyond controlled", scale=alt.Scale(padding=8)),
            y2="to:Q",
            color=alt.condition("datum.step === 'released'", alt.value(INK), alt.value(STEP)),
        )
    )
    return Panel("", effects.subject, {"zero": level_line(0.0), "steps": Marks(bars, chart)}, 170)


def _bars(effects: ConfoundEffects) -> list[dict[str, Any]]:
    """Where each bar begins and ends."""
    shared = set(effects.whole).intersection(*effects.single.values())
    single = {name: _mean(values, shared) for name, values in effects.single.items()} if shared else {}
    total = _mean(effects.whole, shared or effects.whole)
    steps = [*single.items(), ("together", total - sum(single.values()))] if single else []
    level, bars = 0.0, []
    for name, change in steps:
        bars.append({"step": name, "from": level, "to": level + change})
        level += change
    return [*bars, {"step": "released", "from": 0.0, "to": total}]


def _mean(values: Values, seeds: Collection[int]) -> float:
    return fmean(values[seed] for seed in seeds)


EXTRAS.register(
    "confounds",
    Extra(
        "From controlled to released: each switch by itself, what they do together beyond their sum, and the "
        "whole difference, over the seeds that have all of these; alone, the difference is one whose "
        "switches were not thrown.",
        waterfalls,
        width=330,
        columns=2,
    ),
)
