"""Claims 13 and 15: accuracy by the pairs that are held out, and by the classes that train."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import altair as alt

from spectrope.figures import BLUE, GREEN, INK, QUIET, RED, Marks, Panel
from spectrope.study.claims.grok_coverage import attainable_of, share_trained
from spectrope.study.grok_arms import HELD, SIDES, last
from spectrope.study.page.extras.base import DOTS, EXTRAS, Extra, interval_of
from spectrope.study.quantities import Seen

KINDS = {"square": BLUE, "strip": RED, "random": QUIET, "strip, two vocabularies": GREEN}
ACCURACY = ("test accuracy, %", last("test_accuracy", 100.0))
HEIGHT, WIDTH = 170, 260


def by_size(seen: Mapping[str, Seen]) -> list[Panel]:
    """Test accuracy and unevenness by the size of what is held out, where there are several."""
    x = alt.X("k:Q", title="k of 97", scale=alt.Scale(zero=False))
    panels = []
    for title, quantity in (ACCURACY, ("unevenness", last("unevenness"))):
        rows = [
            {"kind": kind, "k": k, **interval}
            for runs in seen.values()
            for kind in HELD
            for k in SIDES
            if (interval := interval_of(runs.values(f"{kind}/{k}", quantity)))
        ]
        if len({row["k"] for row in rows}) > 1:
            panels.append(Panel("", title, _with_intervals(rows, x), HEIGHT))
    return panels


def by_coverage(seen: Mapping[str, Seen]) -> list[Panel]:
    """Test accuracy by the share of a test pair's class that trains, and the attainable accuracy."""
    title, accuracy = ACCURACY
    rows, attainable = [], []
    for runs in seen.values():
        for arm in runs.arms:
            if interval := interval_of(runs.values(arm, accuracy)):
                place = {"kind": _kind(arm), "trained": fmean(runs.values(arm, share_trained).values())}
                rows.append({**place, **interval})
                attainable.append({**place, "estimate": fmean(runs.values(arm, attainable_of).values())})
    if not rows:
        return []
    x = alt.X("trained:Q", title="training share of a test pair's class, %")
    diamonds = alt.Chart().mark_point(shape="diamond", size=60, color=INK).encode(x=x, y="estimate:Q")
    layers = _with_intervals(rows, x) | {"attainable": Marks(attainable, diamonds)}
    return [Panel("", title, layers, HEIGHT)]


def _kind(arm: str) -> str:
    """An arm without its k."""
    kind, _, rest = arm.partition(", k = ")
    return kind + "".join(rest.partition(", ")[1:])


def _with_intervals(rows: Sequence[Mapping[str, Any]], x: alt.X) -> dict[str, Marks]:
    """Means as dots, and intervals as bars, coloured by kind."""
    kinds = {kind: colour for kind, colour in KINDS.items() if any(row["kind"] == kind for row in rows)}
    scale = alt.Scale(domain=list(kinds), range=list(kinds.values()))
    colour = alt.Color("kind:N", scale=scale, legend=alt.Legend(title=None, **DOTS))
    bars = alt.Chart().mark_rule().encode(x=x, y=alt.Y("low:Q", title=None), y2="high:Q", color=colour)
    dots = alt.Chart().mark_circle(size=50, opacity=1).encode(x=x, y="estimate:Q", color=colour)
    return {"intervals": Marks(rows, bars), "means": Marks(rows, dots)}


EXTRAS.register(
    "grok-distribution",
    Extra("By k, scaled to the modulus; bars are 95 % t intervals over seeds.", by_size, width=WIDTH),
)
EXTRAS.register(
    "grok-coverage",
    Extra(
        "Dots: measured, with 95 % t intervals over seeds. Diamonds: what follows from the training pairs.",
        by_coverage,
        width=WIDTH,
    ),
)
