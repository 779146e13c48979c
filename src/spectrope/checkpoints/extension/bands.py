"""Coordinate pairs that reach angles unseen in training, and how much each head uses them."""

import math
from typing import Any

import polars as pl
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from spectrope.checkpoints.adapters import Call, layer_name, recorded
from spectrope.checkpoints.extension.rotations import RotaryModule, rotations_of
from spectrope.core import UnsupportedError

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
        UnsupportedError: If rotary modules differ in width, or attention cannot be observed.
    """
    rotations = rotations_of(model)
    if len({rotation.width for rotation in rotations}) > 1:
        raise UnsupportedError(f"{type(model).__name__} has rotary modules of different widths.")
    rotation, calls = rotations[0], list[Call]()
    with recorded(model, lambda call: calls.append(call.cpu()), attend=True):
        waves = _waves(rotation, lambda: model(input_ids=ids[:, :length], use_cache=False))
    out = leaving(rotation.frequencies.cpu(), length, factor)
    adjacent = waves is not None and _is_adjacent(waves)
    rows = [row for call in calls for row in _rows(call, out, adjacent)]
    if not rows:
        raise UnsupportedError(f"{type(model).__name__} shows no attention kernel.")
    return pl.DataFrame(rows, schema=SCHEMA)


def _waves(rotation: RotaryModule, run: Any) -> Tensor | None:
    """The cosines that a rotary module gives while the model runs."""
    seen: list[Tensor] = []

    def keep(module: nn.Module, inputs: Any, output: Any) -> None:
        if isinstance(output, tuple) and isinstance(output[0], Tensor):
            seen.append(output[0])

    handle = rotation.module.register_forward_hook(keep)
    try:
        run()
    finally:
        handle.remove()
    return seen[0] if seen else None


def _is_adjacent(waves: Tensor) -> bool:
    """Whether cosines come in equal neighbours, as they do where neighbouring coordinates form pairs."""
    even = waves.shape[-1] % 2 == 0
    return even and torch.equal(waves[..., ::2], waves[..., 1::2])


def _rows(call: Call, out: Bool[Tensor, " m"], adjacent: bool) -> list[dict[str, Any]]:
    groups = call.q.shape[1] // call.k.shape[1]
    q, k = call.q.float(), call.k.float().repeat_interleave(groups, 1)
    products = torch.cat(_split(q, len(out), adjacent), -1) * torch.cat(_split(k, len(out), adjacent), -1)
    share = products[..., : len(out)][..., out].sum(-1) / products.sum(-1)
    counts = {"layer": layer_name(call.module)[1], "pairs": len(out), "leaving": int(out.sum())}
    return [counts | {"head": head, "share": float(value)} for head, value in enumerate(share)]


def _split(x: Tensor, m: int, adjacent: bool) -> tuple[Tensor, Tensor]:
    """Mean norms (h, m) of the pairs, and mean sizes (h, r) of the coordinates that are not turned."""
    turned, rest = x[..., : 2 * m], x[..., 2 * m :]
    pairs = turned.unflatten(-1, (m, 2)) if adjacent else turned.unflatten(-1, (2, m)).mT
    return pairs.norm(dim=-1).mean((0, 2)), rest.abs().mean((0, 2))
