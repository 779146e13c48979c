"""Every part of a claim as one line: seeds, interval, the smallest effect of interest, the paper's number."""

from collections.abc import Iterator, Sequence
from typing import Any

import altair as alt

from spectrope.figures import GREEN, INK, LOSS, RED, Marks, Panel, legend, span
from spectrope.study.verdict import ClaimVerdict, PartResult, Word

APPENDIX = "appendix"
OUTCOMES = {
    "reproduced": GREEN,
    "direction only": "#9ccc8f",
    "contradicted": RED,
    "saturated": "#8fb4d9",
    "undecided": "#f0a36b",
    "not testable here": "#5c5c5c",
    APPENDIX: "#b5b5b5",
}
UNITS = {
    "points": "percentage points",
    "of runs": "share of runs",
    "of runs lost": "share of runs that lose it",
    "log odds": "difference of log odds",
    "log ratio": "log ratio",
    "of the run": "share of the run's steps",
    "rho": "rank correlation",
    "r": "correlation",
    "ratio": "ratio",
    "of heads": "share of heads",
}
LINE, WIDTH, LABEL = 22, 250, 420  # Pixels: height of a part, width of a panel, room for its name.
LEAST_SPAN = 0.1  # Of an axis.
ENDS = {"value", "low", "high"}  # Fields that the axis must hold.
INTERVAL = alt.Chart().mark_rule(strokeWidth=4, opacity=0.55)
ESTIMATE = alt.Chart().mark_point(filled=True, size=60)
SEED = alt.Chart().mark_point(filled=True, size=12, color=INK, opacity=1)
EDGE = alt.Chart().mark_tick(thickness=2, size=LINE - 6, color=LOSS[0])
OPEN = {
    "at least": alt.Chart().mark_point(shape="triangle-right", size=70, filled=True, xOffset=5, color=INK),
    "at most": alt.Chart().mark_point(shape="triangle-left", size=70, filled=True, xOffset=-5, color=INK),
}
PAPER = alt.Chart().mark_point(shape="diamond", size=70, stroke=INK, fill="white")


def forest(verdicts: Sequence[ClaimVerdict]) -> list[Panel]:
    """A panel for each condition, and each unit of which some part has two seeds; parts without a
    seed that counts are left out."""
    shown = [verdict for verdict in verdicts if any(finding.evidence for finding in verdict.findings)]
    units = dict.fromkeys(f.part.prediction.unit for v in shown for f in v.findings if f.evidence)
    return [panel for unit in units for panel in _row(shown, unit)]


def _row(verdicts: Sequence[ClaimVerdict], unit: str) -> Iterator[Panel]:
    """The parts of one unit under each condition, on axes that the panels share."""
    measured = {f.part.quantity for verdict in verdicts for f in verdict.findings if f.n_seeds}
    findings = [
        [f for f in one.findings if f.part.prediction.unit == unit and f.part.quantity in measured]
        for one in verdicts
    ]
    order = list(dict.fromkeys(f.part.quantity for group in findings for f in group))
    marks = [_marks(group, verdict.word) for verdict, group in zip(verdicts, findings, strict=True)]
    ends = [
        row[end] for group in marks for rows in group.values() for row in rows for end in row.keys() & ENDS
    ]
    x = alt.Scale(domain=span(ends, LEAST_SPAN), nice=False)
    for place, (verdict, rows) in enumerate(zip(verdicts, marks, strict=True)):
        charts = _charts(UNITS.get(unit, unit), x, order, labelled=place == 0)
        layers = {name: Marks(rows[name], chart) for name, chart in charts.items()}
        yield Panel("", verdict.condition, layers, LINE * len(order))


def _marks(findings: Sequence[PartResult], word: Word) -> dict[str, list[dict[str, Any]]]:
    """What is drawn of some parts, by layer; the one that decides has the colour of the verdict.

    Of a part that was not measured, nothing is drawn but its name; bounds have a triangle at their open end.
    """
    findings = [f for f in findings if f.part.limit != "not measured"]
    intervals = [
        {
            "part": f.part.quantity,
            "outcome": word if f.headline else APPENDIX,
            "low": f.evidence.interval.low,
            "high": f.evidence.interval.high,
            "value": f.evidence.interval.estimate,
        }
        for f in findings
        if f.evidence
    ]
    bounded = [(f.part, f.evidence.interval) for f in findings if f.evidence]
    open_ends = {
        "at least": [(part, interval.high) for part, interval in bounded if part.limit == "at least"],
        "at most": [(part, interval.low) for part, interval in bounded if part.limit == "at most"],
    }
    points = open_ends | {
        "edges": [
            (f.part, edge) for f in findings if not f.part.for_comparison for edge in f.part.prediction.edges
        ],
        "seeds": [(f.part, value) for f in findings for value in f.part.values.values()],
        "papers": [(f.part, f.part.paper) for f in findings if f.part.paper is not None],
    }
    return {"intervals": intervals, "estimates": intervals} | {
        name: [{"part": part.quantity, "value": value} for part, value in rows]
        for name, rows in points.items()
    }


def _charts(unit: str, scale: alt.Scale, order: list[str], *, labelled: bool) -> dict[str, alt.Chart]:
    """The layers from back to front; only the first panel of a row names the parts."""
    axis = alt.Axis(labelLimit=LABEL, labelPadding=8, grid=True, title=None) if labelled else None
    y = alt.Y("part:N", sort=order, scale=alt.Scale(domain=order), axis=axis)
    ticks = alt.Axis(tickCount=6)
    x, low = (alt.X(f"{field}:Q", title=unit, scale=scale, axis=ticks) for field in ("value", "low"))
    colour = alt.Color(
        "outcome:N",
        scale=alt.Scale(domain=list(OUTCOMES), range=list(OUTCOMES.values())),
        legend=legend(symbolType="circle", title=None),
    )
    return {
        "edges": EDGE.encode(x=x, y=y),
        "intervals": INTERVAL.encode(x=low, x2="high:Q", y=y, color=colour),
        "estimates": ESTIMATE.encode(x=x, y=y, color=colour),
        "seeds": SEED.encode(x=x, y=y),
        "papers": PAPER.encode(x=x, y=y),
        **{limit: mark.encode(x=x, y=y) for limit, mark in OPEN.items()},
    }
