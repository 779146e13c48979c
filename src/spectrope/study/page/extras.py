"""What some claims show beside their parts: learning curves, accuracy against RoPE heads, a waterfall."""

from collections.abc import Callable, Collection, Mapping, Sequence
from statistics import fmean
from typing import Any

import polars as pl

from spectrope.figures.palette import styles
from spectrope.figures.spec import INK, QUIET
from spectrope.study.arms import NAMES
from spectrope.study.claim import Claim
from spectrope.study.claims.confounds import Confounds, Effects
from spectrope.study.claims.contraction import OWN, contraction
from spectrope.study.claims.extrapolation import length_loss
from spectrope.study.page.charts import KEY, RULE, Spec, beside, interval_of, layer, panel, whole
from spectrope.study.page.grok_extras import by_coverage, by_hole, courses
from spectrope.study.predictions import Values
from spectrope.study.quantities import Quantity, gap, held_out, learned, speed
from spectrope.study.seen import Seen

ACCURACY = {"type": "quantitative", "title": "accuracy, %", "scale": {"domain": [0, 100]}}
NAMES_AND_BLEND = NAMES | {"blend": "αG_e + J"}
RATIO = {"type": "log", "nice": False}
SPLITS = {"train": "training", "test": "held-out"}
Extra = Callable[[Claim, Mapping[str, Seen]], Spec | None]


def curves(claim: Claim, seen: Mapping[str, Seen]) -> Spec | None:
    """Accuracy by epoch, mean over seeds: a panel per split and condition, as figures 2 and 3."""
    chosen = styles(list(NAMES))
    colour = {
        "field": "encoding",
        "type": "nominal",
        "scale": {
            "domain": [NAMES[name] for name in chosen],
            "range": [style.colour for style in chosen.values()],
        },
        "legend": {"title": None, "orient": "right"},
    }
    rows = []
    for split, label in SPLITS.items():
        panels = []
        for condition, found in seen.items():
            lines = [line for name in NAMES for line in _curve(found, name, split)]
            if lines:
                x = {"field": "epoch", "type": "quantitative", "axis": {"tickMinStep": 1}}
                y = {**ACCURACY, "field": "accuracy"}
                mark = {"type": "line", "point": {"size": 16}}
                title = f"{condition}, {label}"
                panels.append(panel(title, 220, 180, [layer(lines, mark, x=x, y=y, color=colour)]))
        if panels:
            rows.append(beside(panels))
    return whole(*rows) if rows else None


def against_heads(claim: Claim, seen: Mapping[str, Seen]) -> Spec | None:
    """Held-out accuracy against the number of RoPE heads, as figure 5; bars are 95 % t intervals."""
    panels = []
    for condition, found in seen.items():
        known = [
            {"k": int(arm), **ends}
            for arm in found.arms
            if (ends := interval_of(found.values(arm, held_out)))
        ]
        if known:
            x = {"field": "k", "type": "quantitative", "title": "heads with RoPE", "axis": {"tickMinStep": 1}}
            y = {**ACCURACY, "field": "estimate"}
            bars = layer(
                known,
                {"type": "rule", "color": QUIET},
                x=x,
                y={**y, "field": "low"},
                y2={"field": "high"},
            )
            line = layer(known, {"type": "line", "point": True, "color": INK}, x=x, y=y)
            panels.append(panel(condition, 300, 200, [bars, line]))
    return whole(beside(panels)) if panels else None


def waterfall(claim: Claim, seen: Mapping[str, Seen]) -> Spec | None:
    """From `controlled` to `released`: each switch by itself, then what they do beyond their sum.

    Steps are means over the seeds that have all of them; where some switch was not thrown, which is so where
    the whole difference is not worth explaining, the difference stands alone.
    """
    assert isinstance(claim, Confounds)
    found = [effects for one in seen.values() for effects in claim.effects(one) if effects.whole]
    return whole(beside([falls(effects) for effects in found], columns=2)) if found else None


def cloud(x: tuple[str, Quantity], y: tuple[str, Quantity]) -> Extra:
    """One quantity against another, a point per run, coloured by arm; each with its title."""

    def draw(claim: Claim, seen: Mapping[str, Seen]) -> Spec | None:
        panels = []
        for condition, found in seen.items():
            points = [
                {"arm": told(arm), "x": value, "y": others[seed]}
                for arm in found.arms
                for others in [found.values(arm, y[1])]
                for seed, value in found.values(arm, x[1]).items()
                if seed in others
            ]
            if points:
                across, up = (
                    {"field": field, "type": "quantitative", "title": title, "scale": {"zero": False}}
                    for field, (title, _) in (("x", x), ("y", y))
                )
                colour = _by_arm(found.arms)
                mark = {"type": "circle", "size": 45, "opacity": 0.9}
                panels.append(panel(condition, 320, 220, [layer(points, mark, x=across, y=up, color=colour)]))
        return whole(beside(panels)) if panels else None

    return draw


def by_length(claim: Claim, seen: Mapping[str, Seen]) -> Spec | None:
    """Held-out accuracy against the length tested at, mean over the runs that have learned the task."""
    panels = []
    for condition, found in seen.items():
        tables = [
            row.tables["lengths"].select(pl.lit(told(arm)).alias("arm"), "factor", "accuracy")
            for (arm, _), row in found.rows.items()
            if "lengths" in row.tables and learned(row)
        ]
        if tables:
            means = pl.concat(tables).group_by("arm", "factor").mean().sort("arm", "factor")
            points = means.with_columns(pl.col("accuracy") * 100).to_dicts()
            x = {
                "field": "factor",
                "type": "quantitative",
                "title": "length tested at over length of training",
            }
            colour = _by_arm(found.arms)
            mark = {"type": "line", "point": {"size": 24}}
            lines = layer(points, mark, x=x, y={**ACCURACY, "field": "accuracy"}, color=colour)
            panels.append(panel(condition, 320, 220, [lines]))
    return whole(beside(panels)) if panels else None


def by_head(claim: Claim, seen: Mapping[str, Seen]) -> Spec | None:
    """The ratio of claim 8 head by head under RoPE itself, a point per head and run."""
    panels = []
    for condition, found in seen.items():
        points = [
            {"layer": number, "head": head, "ratio": ratio}
            for (arm, _), row in found.rows.items()
            if arm == OWN and "spectrum" in row.tables
            for number, head, ratio in row.tables["spectrum"]
            .select("layer", "head", "contraction_spectral")
            .drop_nulls()
            .iter_rows()
        ]
        if points:
            x = {"field": "layer", "type": "nominal", "title": "layer, heads side by side"}
            y = {"field": "ratio", "type": "quantitative", "title": "ratio of spectral norms", "scale": RATIO}
            mark = {"type": "circle", "size": 22, "opacity": 0.5, "color": INK}
            heads = layer(points, mark, x=x | {"axis": {"labelAngle": 0}}, y=y, xOffset={"field": "head"})
            one = layer([{"one": 1.0}], RULE, y={"field": "one", "type": "quantitative"})
            panels.append(panel(condition, 320, 220, [one, heads]))
    return whole(beside(panels)) if panels else None


def below(*draws: Extra) -> Extra:
    """Several charts below one another, those of them that have something to show."""

    def draw(claim: Claim, seen: Mapping[str, Seen]) -> Spec | None:
        specs = [spec for one in draws if (spec := one(claim, seen)) is not None]
        return whole(*(row for spec in specs for row in spec["vconcat"])) if specs else None

    return draw


def falls(effects: Effects) -> Spec:
    """One panel of it."""
    shared = set(effects.whole).intersection(*effects.single.values())
    single = {name: _mean(values, shared) for name, values in effects.single.items()} if shared else {}
    total = _mean(effects.whole, shared or effects.whole)
    steps = [*single.items(), ("together", total - sum(single.values()))] if single else []
    place, bars = 0.0, []
    for name, change in steps:
        bars.append({"step": name, "from": place, "to": place + change})
        place += change
    bars.append({"step": "released", "from": 0.0, "to": total})
    order = [bar["step"] for bar in bars]
    x = {"field": "step", "type": "nominal", "sort": order, "title": None, "axis": {"labelAngle": -35}}
    y = {
        "field": "from",
        "type": "quantitative",
        "title": "points beyond controlled",
        "scale": {"padding": 8},
    }
    colour = {"condition": {"test": "datum.step === 'released'", "value": INK}, "value": "#8aa6c1"}
    zero = layer([{"zero": 0}], RULE, y={"field": "zero", "type": "quantitative"})
    bar = layer(bars, {"type": "bar", "size": 16}, x=x, y=y, y2={"field": "to"}, color=colour)
    return panel(effects.subject, 330, 170, [zero, bar])


def told(arm: str) -> str:
    """An arm in words, such as "RoPE, dropout 0.3" for "rope/0.3"."""
    name, _, rate = arm.partition("/")
    return NAMES_AND_BLEND.get(name, name) + (f", dropout {rate}" if rate else "")


def _by_arm(arms: Sequence[str]) -> Spec:
    """Colours of arms, in their order: those of encodings are the same in every figure."""
    chosen = styles(arms) if set(arms) & set(NAMES) else {}
    colours = {"range": [chosen[arm].colour for arm in arms]} if chosen else {}
    scale = {"domain": [told(arm) for arm in arms], **colours}
    return {"field": "arm", "type": "nominal", "scale": scale, "legend": KEY | {"labelLimit": 200}}


def _mean(values: Values, seeds: Collection[int]) -> float:
    return fmean(values[seed] for seed in seeds)


def _curve(seen: Seen, arm: str, split: str) -> list[dict[str, Any]]:
    own = [
        row.tables["metrics"].filter(pl.col("split") == split)
        for (name, _), row in seen.rows.items()
        if name == arm and "metrics" in row.tables
    ]
    if not own:
        return []
    means = pl.concat([table.select("epoch", "accuracy") for table in own]).group_by("epoch").mean()
    return [
        {"encoding": NAMES[arm], "epoch": epoch, "accuracy": 100 * accuracy}
        for epoch, accuracy in means.sort("epoch").rows()
    ]


EXTRAS: Mapping[str, tuple[str, Extra]] = {
    "distance-ordering": ("Accuracy by epoch, mean over seeds.", curves),
    "counting-biases": ("Accuracy by epoch, mean over seeds.", curves),
    "partial-rope": (
        "Accuracy by heads with RoPE; bars are 95 % t intervals over seeds.",
        against_heads,
    ),
    "contraction": (
        "Above, a point per run, coloured by RoPE's base; below, a point per head and run at RoPE's own "
        "base, 10,000: rotation contracts below 1.",
        below(
            cloud(
                ("mean ratio of spectral norms, with over without rotation", contraction), ("speed, %", speed)
            ),
            by_head,
        ),
    ),
    "extrapolation": (
        "Above, a point per run; below, accuracy by length, mean over the runs that learned the task.",
        below(
            cloud(
                ("largest gap, points", gap()),
                ("part of the accuracy lost on longer sequences, %", length_loss),
            ),
            by_length,
        ),
    ),
    "confounds": (
        "From controlled to released: each switch by itself, what they do together beyond their sum, and the "
        "whole difference, over the seeds that have all of these; alone, the difference is one whose "
        "switches were not thrown.",
        waterfall,
    ),
    "grok-distribution": (
        "By k, scaled to the modulus; bars are 95 % t intervals over seeds.",
        by_hole,
    ),
    "grok-med": (
        "Learned from random pairs, a line per seed.",
        courses("random", {"test_loss": "test loss", "med": "MED", "unevenness": "unevenness"}),
    ),
    "grok-coverage": (
        "Dots: measured, with 95 % t intervals over seeds. Diamonds: what follows from the training pairs.",
        by_coverage,
    ),
    "grok-vision": (
        "A line per seed.",
        courses("images", {"train_accuracy": "training accuracy, %", "test_accuracy": "test accuracy, %"}),
    ),
}
