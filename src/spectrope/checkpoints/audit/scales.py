"""The factor on dot products, compared between layers that should share it."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from spectrope.checkpoints.audit.compare import GAIN, Discrepancy
from spectrope.checkpoints.audit.declaration import layer_type
from spectrope.checkpoints.audit.declared_scale import talking_alone
from spectrope.checkpoints.audit.fields import Declaration
from spectrope.checkpoints.audit.records import LayerRecord

PER_LAYER = "scale_attn_by_inverse_layer_idx"  # Declares a factor of its own for each layer, as GPT-2 may.


def compare_scales(
    records: Sequence[LayerRecord], declaration: Declaration, noise: float
) -> tuple[LayerRecord, ...]:
    """Records in which a layer whose factor on dot products is not that of its like differs.

    Layers are alike that are of one stack and one declared kind and apply one encoding. Without a majority
    among them, the first layer's factor is the one expected.

    Args:
        records: Of all layers that were measured.
        declaration: Of the model.
        noise: Relative rounding error of the model's arithmetic.
    """
    if declaration.get(PER_LAYER) or talking_alone(declaration):
        return tuple(records)
    usual = _usual_scales(records, declaration)
    return tuple(_judged(one, usual[_like(one, declaration)], max(GAIN, 10 * noise)) for one in records)


def _like(one: LayerRecord, declaration: Declaration) -> tuple[str, str, str | None]:
    return one.stack, layer_type(declaration.of(one.stack), one.layer), one.effective.kind


def _usual_scales(
    records: Sequence[LayerRecord], declaration: Declaration
) -> dict[tuple[str, str, str | None], float]:
    """The most common factor of each kind of layer, to three digits; of ties, the first layer's."""
    groups: dict[tuple[str, str, str | None], list[float]] = {}
    for one in records:
        groups.setdefault(_like(one, declaration), []).append(one.scale)
    common = {like: Counter(f"{scale:.3g}" for scale in scales) for like, scales in groups.items()}
    return {
        like: next(s for s in scales if f"{s:.3g}" == common[like].most_common(1)[0][0])
        for like, scales in groups.items()
    }


def _judged(one: LayerRecord, usual: float, tolerance: float) -> LayerRecord:
    if one.declared.scale is not None:
        return one
    if abs(one.scale - usual) <= tolerance * abs(usual) or one.verdict not in ("matches", "differs"):
        return one
    ratio = one.scale / usual
    found = Discrepancy(
        "attention scale",
        f"{usual:.5g} as in similar layers",
        f"{one.scale:.5g}",
        f"{ratio:.4g} times as large",
        residual=abs(ratio - 1),
    )
    return replace(one, verdict="differs", findings=(*one.findings, found))
