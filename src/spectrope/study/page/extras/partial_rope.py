"""Claim 5: accuracy against the number of heads with RoPE, as the paper's figure 5."""

from collections.abc import Mapping

import altair as alt

from spectrope.figures import INK, QUIET, Marks, Panel
from spectrope.study.claims.partial_rope import COUNTING
from spectrope.study.page.extras.base import ACCURACY, EXTRAS, Extra, interval_of
from spectrope.study.quantities import Seen, held_out


def against_heads(seen: Mapping[str, Seen]) -> list[Panel]:
    """Held-out accuracy against the number of heads with RoPE, a panel per task and condition."""
    x = alt.X("k:Q", title="heads with RoPE", axis=alt.Axis(tickMinStep=1))
    bars = alt.Chart().mark_rule(color=QUIET).encode(x=x, y=alt.Y("low:Q", **ACCURACY), y2="high:Q")
    line = (
        alt.Chart().mark_line(point={"color": INK}, color=INK).encode(x=x, y=alt.Y("estimate:Q", **ACCURACY))
    )
    panels = []
    for prefix, task in {"": "Task 1", COUNTING: "Task 2"}.items():
        for condition, runs in seen.items():
            arms = {k: f"{prefix}{k}" for arm in runs.arms if (k := arm.removeprefix(prefix)).isdigit()}
            intervals = {k: interval_of(runs.values(arm, held_out)) for k, arm in arms.items()}
            rows = [{"k": int(k), **interval} for k, interval in intervals.items() if interval]
            if rows:
                layers = {"intervals": Marks(rows, bars), "means": Marks(rows, line)}
                panels.append(Panel(task, condition, layers, 200))
    return panels


EXTRAS.register(
    "partial-rope",
    Extra("Accuracy by heads with RoPE; bars are 95 % t intervals over seeds.", against_heads, width=300),
)
