"""diffusers: `get_1d_rotary_pos_embed` and `apply_rotary_emb`."""

from diffusers.models.embeddings import apply_rotary_emb, get_1d_rotary_pos_embed
from torch import Tensor

REQUIRES = ("diffusers", "importlib_metadata", "zipp", "pillow")


def apply_rope(
    x: Tensor,
    positions: Tensor,
    base: float = 10000.0,
    layout: str = "interleaved",
    scaling: dict | None = None,
) -> Tensor:
    scaling = scaling or {"rope_type": "linear", "factor": 1.0}
    if scaling["rope_type"] != "linear":
        raise NotImplementedError("scaling")
    interleaved = layout == "interleaved"
    tables = get_1d_rotary_pos_embed(
        x.shape[-1], positions, theta=base, use_real=True, linear_factor=scaling["factor"],
        repeat_interleave_real=interleaved,
    )  # fmt: skip
    return apply_rotary_emb(x, tables, use_real_unbind_dim=-1 if interleaved else -2)
