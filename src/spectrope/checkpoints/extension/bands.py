"""Coordinate pairs that reach angles unseen in training, and how much each head uses them."""

import math
from typing import Any

import polars as pl
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from spectrope.checkpoints.adapters import Call, layer_name, recorded
from spectrope.checkpoints.audit.layout import Layout
from spectrope.checkpoints.extension.applied import AppliedRotation, applied_rotations
from spectrope.checkpoints.extension.rotations import rotations_of
from spectrope.checkpoints.probes.constant_content import attention_modules

SCHEMA: dict[str, Any] = {
    "layer": pl.Int64,
    "head": pl.Int64,
    "pairs": pl.Int64,
    "leaving": pl.Int64,
    "share": pl.Float64,
}


def leaving(frequencies: Float[Tensor, " m"], length: int, factor: float) -> Bool[Tensor, " m"]:
    r"""Whether each pair meets new angles: :math:`\omega L < 2\pi`, less than one turn in the trained length.

    A pair that completes a turn in training covers all angles. Any other pair reaches :math:`\omega L` in
    training and :math:`\omega s L` at the new length, unless the factor s is 1 or the frequency is 0.
    """
    return (frequencies > 0) & (frequencies * length < 2 * math.pi) & torch.tensor(factor > 1)


@torch.no_grad()
def head_bands(model: nn.Module, ids: Int[Tensor, "n t"], length: int, factor: float) -> pl.DataFrame:
    r"""For each head, the pairs that leave the trained range, and their share of its logits.

    Logits are sums over pairs of at most :math:`|q_j||k_j|`. The share is the sum of the mean products of
    norms over the pairs that leave, over that of all coordinates; norms are not changed by rotation.

    Args:
        model: A Hugging Face model with rotary modules.
        ids: Tokens, of which at most the trained length is read.
        length: Trained length, in positions.
        factor: New length over the trained one.

    Returns:
        A row per layer and head: `layer`, `head`, `pairs`, `leaving` and `share`.

    Raises:
        UnsupportedError: If the rotation of a layer is none of its rotary modules', or attention cannot be
            observed.
    """
    applied = applied_rotations(model, attention_modules(model), rotations_of(model))
    calls = list[Call]()
    with recorded(model, lambda call: calls.append(call.cpu()), attend=True):
        model(input_ids=ids[:, :length], use_cache=False)
    rows = [row for call in calls for row in _rows(call, applied[call.module], length, factor)]
    return pl.DataFrame(rows, schema=SCHEMA)


def _rows(call: Call, applied: AppliedRotation | None, length: int, factor: float) -> list[dict[str, Any]]:
    """A row per head; heads that turn nothing have no pairs, and no share."""
    layer = {"layer": layer_name(call.module)[1]}
    if applied is None:
        none = {"pairs": 0, "leaving": 0, "share": 0.0}
        return [layer | none | {"head": head} for head in range(call.q.shape[1])]
    out = leaving(applied.rotary.frequencies.cpu(), length, factor)
    groups = call.q.shape[1] // call.k.shape[1]
    q, k = call.q.float(), call.k.float().repeat_interleave(groups, 1)
    products = torch.cat(_split(q, applied.layout), -1) * torch.cat(_split(k, applied.layout), -1)
    share = products[..., : len(out)][..., out].sum(-1) / products.sum(-1)
    counts = {"pairs": len(out), "leaving": int(out.sum())}
    return [layer | counts | {"head": head, "share": float(value)} for head, value in enumerate(share)]


def _split(x: Tensor, layout: Layout) -> tuple[Tensor, Tensor]:
    """Mean norms (h, m) of the pairs, and mean sizes (h, r) of the coordinates that are not turned."""
    rest = torch.cat([x[..., : layout.start], x[..., layout.start + layout.width :]], -1)
    return layout.planes(x).abs().mean((0, 2)), rest.abs().mean((0, 2))
