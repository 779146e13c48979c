"""x-transformers: `RotaryEmbedding` and `apply_rotary_pos_emb`."""

from torch import Tensor
from x_transformers.x_transformers import RotaryEmbedding, apply_rotary_pos_emb

REQUIRES = ("x-transformers", "einops", "einx", "loguru", "frozendict", "torch-einops-utils")


def apply_rope(
    x: Tensor, positions: Tensor, base: float = 10000.0, width: int | None = None, scaling: dict | None = None
) -> Tensor:
    scaling = scaling or {"rope_type": "linear", "factor": 1.0}
    if scaling["rope_type"] != "linear":
        raise NotImplementedError("scaling")
    rotary = RotaryEmbedding(width or x.shape[-1], base=base, interpolation_factor=scaling["factor"])
    frequencies, scale = rotary(positions)
    return apply_rotary_pos_emb(x, frequencies, scale)
