"""Every part of a claim as one line: seeds, interval, the smallest effect of interest, the paper's number."""

from collections.abc import Sequence
from typing import Any

from spectrope.figures.palette import LOSS
from spectrope.figures.spec import INK
from spectrope.study.page.charts import KEY, OUTCOMES, SPARED, Spec, beside, layer, panel, whole
from spectrope.study.verdict import Finding, Verdict

UNITS = {
    "points": "percentage points",
    "of runs": "share of runs",
    "rho": "rank correlation",
    "r": "correlation",
    "ratio": "ratio",
    "of heads": "share of heads",
}
LINE, WIDTH, LABEL = 22, 250, 420  # Pixels: height of a part, width of a panel, room for its name.


def forest(verdicts: Sequence[Verdict]) -> Spec | None:
    """A panel per condition, and unit of which some part has two seeds; None where there is none."""
    shown = [verdict for verdict in verdicts if any(finding.evidence for finding in verdict.findings)]
    units = dict.fromkeys(f.part.prediction.unit for v in shown for f in v.findings if f.evidence)
    rows = [
        beside([_panel(verdict, unit, first=not place) for place, verdict in enumerate(shown)])
        for unit in units
    ]
    for row in rows:
        row["resolve"] = {"scale": {"x": "shared"}}
    return whole(*rows) if rows else None


def _panel(verdict: Verdict, unit: str, *, first: bool) -> Spec:
    findings = [finding for finding in verdict.findings if finding.part.prediction.unit == unit]
    order = list(dict.fromkeys(finding.part.quantity for finding in findings))
    axis = {"labelLimit": LABEL, "labelPadding": 8, "grid": True, "title": None} if first else None
    y = {"field": "part", "type": "nominal", "sort": order, "scale": {"domain": order}, "axis": axis}
    lines = [_line(finding) for finding in findings]
    known = [line for line in lines if line["estimate"] is not None]
    x = {"field": "estimate", "type": "quantitative", "title": UNITS.get(unit, unit)}
    colour = {
        "field": "outcome",
        "type": "nominal",
        "scale": {"domain": list(OUTCOMES), "range": list(OUTCOMES.values())},
        "legend": KEY | {"orient": "bottom"} if first else None,
    }
    seeds = [
        {"part": finding.part.quantity, "estimate": value}
        for finding in findings
        for value in finding.part.values.values()
    ]
    papers = [
        {"part": finding.part.quantity, "estimate": finding.part.paper}
        for finding in findings
        if finding.part.paper is not None
    ]
    edges = [{"part": line["part"], "estimate": edge} for line in lines for edge in line["edges"]]
    diamond = {"type": "point", "shape": "diamond", "size": 70, "stroke": INK, "fill": "white"}
    tick = {"type": "tick", "thickness": 2, "size": LINE - 6, "color": LOSS[0]}
    interval = {"type": "rule", "strokeWidth": 4, "opacity": 0.55}
    return panel(
        verdict.condition,
        WIDTH,
        LINE * max(1, len(order)),
        [
            layer(edges, tick, x=x, y=y),
            layer(known, interval, x={**x, "field": "low"}, x2={"field": "high"}, y=y, color=colour),
            layer(known, {"type": "point", "filled": True, "size": 60}, x=x, y=y, color=colour),
            layer(seeds, {"type": "point", "filled": True, "size": 12, "color": INK, "opacity": 1}, x=x, y=y),
            layer(papers, diamond, x=x, y=y),
        ],
    )


def _line(finding: Finding) -> dict[str, Any]:
    prediction, evidence = finding.part.prediction, finding.evidence
    interval = evidence.interval if evidence else None
    return {
        "part": finding.part.quantity,
        "outcome": SPARED if finding.spared else finding.outcome,
        "estimate": interval.estimate if interval else None,
        "low": interval.low if interval else None,
        "high": interval.high if interval else None,
        "edges": prediction.edges,
    }
