"""rotary-embedding-torch: `RotaryEmbedding.rotate_queries_or_keys`, or its parts where positions jump."""

import torch
from rotary_embedding_torch import RotaryEmbedding, apply_rotary_emb
from torch import Tensor

REQUIRES = ("rotary-embedding-torch", "einops")


def apply_rope(
    x: Tensor, positions: Tensor, base: float = 10000.0, width: int | None = None, scaling: dict | None = None
) -> Tensor:
    scaling = scaling or {"rope_type": "linear", "factor": 1.0}
    if scaling["rope_type"] != "linear":
        raise NotImplementedError("scaling")
    rotary = RotaryEmbedding(width or x.shape[-1], theta=base, interpolate_factor=scaling["factor"])
    first = int(positions[0])
    if torch.equal(positions, torch.arange(first, first + len(positions))):
        return rotary.rotate_queries_or_keys(x, offset=first)
    return apply_rotary_emb(rotary(positions.float() / scaling["factor"]), x)
