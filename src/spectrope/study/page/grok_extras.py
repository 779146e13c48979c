"""What the claims on grokking show beside their parts: courses of runs, and accuracy by what is held out."""

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

from spectrope.figures.spec import INK, QUIET
from spectrope.study.claim import Claim
from spectrope.study.claims.grok_coverage import attainable_of, share_trained
from spectrope.study.grok_arms import HELD, SIDES, course, last
from spectrope.study.page.charts import Spec, beside, interval_of, layer, panel, whole
from spectrope.study.seen import Seen

KINDS = {"square": "#1a65c8", "strip": "#d84a02", "random": QUIET, "strip, two vocabularies": "#079e6f"}
WIDTH, HEIGHT = 260, 170

Drawing = Callable[[Claim, Mapping[str, Seen]], Spec | None]


def courses(arm: str, columns: Mapping[str, str]) -> Drawing:
    """Columns of the progress table by step, a panel each and a line per seed.

    Args:
        arm: Whose runs.
        columns: What to draw, by column; accuracies become percent.
    """

    def draw(claim: Claim, seen: Mapping[str, Seen]) -> Spec | None:
        tables = [
            (seed, table)
            for found in seen.values()
            for (name, seed), row in found.rows.items()
            if name == arm and (table := course(row, *columns)) is not None
        ]
        if not tables:
            return None
        return whole(beside([_course(column, told, tables) for column, told in columns.items()]))

    return draw


def by_hole(claim: Claim, seen: Mapping[str, Seen]) -> Spec | None:
    """Test accuracy and unevenness by the size of what is held out; bars are 95 % t intervals over seeds."""
    shown = {"test accuracy, %": last("test_accuracy", 100.0), "unevenness": last("unevenness")}
    panels = []
    for title, quantity in shown.items():
        rows = [
            {"kind": kind, "k": k, **ends}
            for found in seen.values()
            for kind in HELD
            for k in SIDES
            if (ends := interval_of(found.values(f"{kind}/{k}", quantity)))
        ]
        if not rows:
            return None
        x = {"field": "k", "type": "quantitative", "title": "k of 97", "scale": {"zero": False}}
        panels.append(_with_bars(title, rows, x))
    return whole(beside(panels))


def by_coverage(claim: Claim, seen: Mapping[str, Seen]) -> Spec | None:
    """Test accuracy by the share of the test pairs' classes that trains, and what follows from the pairs."""
    rows, attainable = [], []
    for found in seen.values():
        for arm in found.arms:
            ends = interval_of(found.values(arm, last("test_accuracy", 100.0)))
            if ends:
                trained = fmean(found.values(arm, share_trained).values())
                kind, _, rest = arm.partition(", k = ")
                place = {"kind": kind + "".join(rest.partition(", ")[1:]), "trained": trained}
                rows.append({**place, **ends})
                attainable.append({**place, "estimate": fmean(found.values(arm, attainable_of).values())})
    if not rows:
        return None
    x = {"field": "trained", "type": "quantitative", "title": "share of a test pair's class that trains, %"}
    chart = _with_bars("test accuracy, %", rows, x)
    y = {"field": "estimate", "type": "quantitative"}
    rings = {"type": "point", "shape": "diamond", "size": 60, "color": INK}
    chart["layer"].append(layer(attainable, rings, x=x, y=y))
    return whole(beside([chart]))


def _course(column: str, told: str, tables: Sequence[tuple[int, Any]]) -> Spec:
    factor = 100.0 if column.endswith("accuracy") else 1.0
    rows = [
        {"seed": seed, "step": step, "value": factor * value}
        for seed, table in tables
        for step, value in table.select("step", column).drop_nulls().iter_rows()
    ]
    x = {"field": "step", "type": "quantitative", "title": "step"}
    y = {"field": "value", "type": "quantitative", "title": None, "scale": {"zero": False}}
    line = layer(
        rows,
        {"type": "line", "strokeWidth": 1.2, "color": INK, "opacity": 0.6},
        x=x,
        y=y,
        detail=_nominal("seed"),
    )
    return panel(told, WIDTH, HEIGHT, [line])


def _with_bars(title: str, rows: Sequence[Mapping[str, Any]], x: Spec) -> Spec:
    y = {"field": "estimate", "type": "quantitative", "title": None}
    shown = {kind: colour for kind, colour in KINDS.items() if any(row["kind"] == kind for row in rows)}
    scale = {"domain": list(shown), "range": list(shown.values())}
    colour = _nominal("kind") | {"scale": scale, "legend": {"title": None}}
    ends = {"y": {**y, "field": "low"}, "y2": {"field": "high"}}
    bars = layer(rows, {"type": "rule"}, x=x, color=colour, **ends)
    dots = layer(rows, {"type": "circle", "size": 50, "opacity": 1}, x=x, y=y, color=colour)
    return panel(title, WIDTH, HEIGHT, [bars, dots])


def _nominal(field: str) -> Spec:
    return {"field": field, "type": "nominal"}
