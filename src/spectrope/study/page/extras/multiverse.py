"""Claim 4: the share of runs with a deposit over every choice of dropout, depth and condition."""

from collections.abc import Mapping

import altair as alt

from spectrope.figures import QUIET, Marks, Panel
from spectrope.stats import seed_proportion
from spectrope.study.arms import DEPTHS, NAMES
from spectrope.study.page.extras.base import EXTRAS, Extra, by_arm
from spectrope.study.quantities import Seen, deposit, shallow

SHARE = {"title": "runs with a deposit, %", "scale": alt.Scale(domain=[0, 100])}


def multiverse(seen: Mapping[str, Seen]) -> list[Panel]:
    """A panel per condition and depth; a point per encoding and rate of dropout."""
    return [
        panel
        for condition, runs in seen.items()
        for words, depth in DEPTHS.items()
        for panel in _panel(f"{words} of the layers", condition, runs, depth)
    ]


def _panel(group: str, condition: str, runs: Seen, depth: float) -> list[Panel]:
    layers = tuple(shallow(runs.n_layers, depth)) if runs.rows else ()
    rows = [row for arm in runs.arms if (row := _share(runs, arm, layers))]
    if not rows:
        return []
    names = list(dict.fromkeys(arm.partition("/")[0] for arm in runs.arms))
    x = alt.X("rate:Q", title="dropout", scale=alt.Scale(nice=True, zero=True))
    bars = alt.Chart().mark_rule(color=QUIET).encode(x=x, y=alt.Y("low:Q", **SHARE), y2="high:Q")
    points = (
        alt.Chart()
        .mark_line(point={"size": 60})
        .encode(x=x, y=alt.Y("share:Q", **SHARE), color=by_arm(names))
    )
    return [Panel(group, condition, {"intervals": Marks(rows, bars), "shares": Marks(rows, points)}, 200)]


def _share(runs: Seen, arm: str, layers: tuple[int, ...]) -> dict[str, object] | None:
    """The share of an arm's runs that have a deposit in some layers, in percent with its exact interval."""
    events = runs.values(arm, deposit(layers))
    if not events:
        return None
    share = seed_proportion([bool(event) for event in events.values()]).proportion
    name, _, rate = arm.partition("/")
    return {
        "arm": NAMES[name],
        "rate": float(rate),
        "share": 100 * share.estimate,
        "low": 100 * share.low,
        "high": 100 * share.high,
        "runs": len(events),
    }


EXTRAS.register(
    "dropout",
    Extra(
        "Runs with a deposit by dropout, encoding, condition and depth. Bars: exact 95 % intervals of the "
        "share of runs, uncorrected.",
        multiverse,
        width=240,
        columns=2,
    ),
)
