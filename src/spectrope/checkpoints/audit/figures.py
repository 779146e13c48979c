"""Panels of an audit: kernels of heads by lag, frequencies of pairs, and slopes of biases."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import altair as alt

from spectrope.checkpoints.audit import Audit, LayerRecord
from spectrope.figures import Marks, Panel, exact, legend

HEADS = 16  # Most heads drawn of a layer.
DECLARED, EFFECTIVE = "#464646", "#d84a02"
DataRows = list[dict[str, Any]]


def kernel_panels(audit: Audit) -> list[Panel]:
    """A panel per layer whose kernel varies with the lag, with a line per head."""
    return [
        Panel("", f"layer {layer.name}", _kernels(layer), 150)
        for layer in audit.layers
        if any(head.lags for head in layer.heads)
    ]


def pair_panels(audit: Audit) -> list[Panel]:
    """A panel for all layers whose pairs turn alike and are declared alike."""
    groups: dict[tuple[Any, ...], list[LayerRecord]] = {}
    for layer in audit.layers:
        if layer.effective.turning is not None:
            key = (layer.declared.turning, layer.effective.describe(layer.declared.turning), layer.verdict)
            groups.setdefault(key, []).append(layer)
    return [Panel("", _names(members), _pairs(members[0], audit.length), 190) for members in groups.values()]


def slope_panels(audit: Audit) -> list[Panel]:
    """A panel for all layers whose linear biases fall alike."""
    groups: dict[tuple[Any, ...], list[LayerRecord]] = {}
    for layer in audit.layers:
        if layer.effective.slopes is not None:
            key = (layer.declared.slopes, *(f"{slope:.4g}" for slope in layer.effective.slopes))
            groups.setdefault(key, []).append(layer)
    return [Panel("", _names(members), _slopes(members[0]), 190) for members in groups.values()]


def _kernels(layer: LayerRecord) -> Mapping[str, Marks]:
    """Lines where neighbouring lags were measured; beyond, dots, between which nothing is known."""
    heads = [head for head in layer.heads if head.lags]
    step = math.ceil(len(heads) / HEADS)
    shown = [head.head for head in heads[::step]]
    near, far = list[dict[str, Any]](), list[dict[str, Any]]()
    for head in heads[::step]:
        dense = _dense(head.lags)
        for lag, value in zip(head.lags, head.kernel, strict=True):
            (near if lag in dense else far).append({"head": head.head, "lag": lag, "logit": value})
    place = {
        "x": alt.X("lag:Q", title="lag, positions", scale=alt.Scale(nice=False)),
        "y": alt.Y("logit:Q", title="logit"),
        "color": _colour(shown),
        "tooltip": [alt.Tooltip("head:Q"), alt.Tooltip("lag:Q"), exact("logit", "logit", ".4f")],
    }
    line = alt.Chart().mark_line(strokeWidth=1.1, opacity=0.8)
    dots = alt.Chart().mark_circle(size=9, opacity=0.8)
    layers = {"heads": Marks(near, line.encode(**place))}
    return layers | ({"sparse": Marks(far, dots.encode(**place))} if far else {})


def _dense(lags: Sequence[int]) -> set[int]:
    """The longest stretch of neighbouring lags: a line between others would draw waves that are not there."""
    stretches: list[list[int]] = []
    for lag in sorted(lags):
        if stretches and stretches[-1][-1] == lag - 1:
            stretches[-1].append(lag)
        else:
            stretches.append([lag])
    return set(max(stretches, key=len))


def _pairs(layer: LayerRecord, length: int) -> Mapping[str, Marks]:
    """Wavelengths of both sides over the pairs, and the lengths that tell which of them turn fully."""
    turning, declared = layer.effective.turning, layer.declared.turning
    assert turning is not None
    trained = layer.reach.trained if layer.reach else None
    ends = {"audited length": length} | ({} if trained in (None, length) else {"declared length": trained})
    rules = [{"positions": positions, "name": name} for name, positions in ends.items()]
    layers = {
        "lengths": Marks(rules, _rule()),
        "names": Marks(rules[:1], _rule_names("bottom")),
        "effective": Marks(_wavelengths(turning.frequencies), _points("pair", EFFECTIVE, filled=True)),
    }
    if len(rules) > 1:
        layers["names_below"] = Marks(rules[1:], _rule_names("top"))
    if declared is not None:
        layers["declared"] = Marks(
            _wavelengths(declared.frequencies), _points("pair", DECLARED, filled=False)
        )
    return layers


def _slopes(layer: LayerRecord) -> Mapping[str, Marks]:
    assert layer.effective.slopes is not None
    slopes = [*layer.effective.slopes, *(layer.declared.slopes or ())]
    steepest = max(map(abs, slopes), default=1.0) or 1.0
    signed = alt.Scale(type="symlog", constant=steepest / 100)  # A logarithm has no place for them.
    scale = alt.Scale(type="log") if min(slopes, default=1.0) > 0 else signed
    effective = _points("head", EFFECTIVE, filled=True, of=SLOPE, scale=scale)
    layers = {"effective": Marks(_by_head(layer.effective.slopes), effective)}
    if layer.declared.slopes is not None:
        declared = _points("head", DECLARED, filled=False, of=SLOPE, scale=scale)
        layers["declared"] = Marks(_by_head(layer.declared.slopes), declared)
    return layers


WAVELENGTH = ("wavelength", "wavelength, positions per turn")
SLOPE = ("slope", "logits lost per position")


def _points(
    number: str,
    colour: str,
    *,
    filled: bool,
    of: tuple[str, str] = WAVELENGTH,
    scale: alt.Scale | None = None,
) -> alt.Chart:
    """Filled dots of what is effective, rings around them of what is declared."""
    field, title = of
    whole = alt.Axis(tickMinStep=1, format="d")
    mark = alt.Chart().mark_point(filled=filled, color=colour, size=28 if filled else 70, opacity=1)
    return mark.encode(
        x=alt.X(f"{number}:Q", title=number, scale=alt.Scale(padding=10, nice=False), axis=whole),
        y=alt.Y(f"{field}:Q", title=title, scale=scale or alt.Scale(type="log"), axis=alt.Axis(format="~g")),
        tooltip=[alt.Tooltip(f"{number}:Q"), exact(field, title, ".6g")],
    )


def _rule() -> alt.Chart:
    return alt.Chart().mark_rule(color="#9a9a9a", strokeDash=[4, 3]).encode(y=alt.Y("positions:Q"))


def _rule_names(baseline: Literal["bottom", "top"]) -> alt.Chart:
    """Above the longer length's line, below the other's."""
    text = alt.Chart().mark_text(align="left", baseline=baseline, dx=2, color="#5c5c5c")
    return text.encode(x=alt.value(0), y=alt.Y("positions:Q"), text=alt.Text("name:N"))


def _wavelengths(frequencies: Sequence[float]) -> DataRows:
    """Positions per turn of each pair that turns."""
    return [{"pair": j, "wavelength": 2 * math.pi / abs(f)} for j, f in enumerate(frequencies) if f]


def _by_head(slopes: Sequence[float]) -> DataRows:
    return [{"head": head, "slope": slope} for head, slope in enumerate(slopes)]


def _names(layers: Iterable[LayerRecord]) -> str:
    """Such as "layers 0 to 11" or "layers encoder 0, encoder 2"."""
    names = [layer.name for layer in layers]
    if len(names) == 1:
        return f"layer {names[0]}"
    numbers = [int(name) for name in names if name.isdigit()]
    if len(numbers) == len(names) and numbers == list(range(numbers[0], numbers[-1] + 1)):
        return f"layers {numbers[0]} to {numbers[-1]}"
    return f"layers {', '.join(names)}"


def _colour(heads: Sequence[int]) -> alt.Color:
    """Colour by head, dark to light; the key names six of them at most."""
    scale = alt.Scale(domain=list(heads), scheme=alt.SchemeParams(name="viridis", extent=[0.05, 0.85]))
    key = legend(values=list(heads[:: math.ceil(len(heads) / 6)]))
    return alt.Color("head:O", title="head", scale=scale, legend=key)
