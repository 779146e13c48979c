"""litgpt: `build_rope_cache` and `apply_rope`."""

from functools import cache

import torch
from litgpt.model import apply_rope as apply_halves
from litgpt.model import build_rope_cache
from torch import Tensor

REQUIRES = ("litgpt", "lightning", "lightning-utilities", "torchmetrics", "jsonargparse")
KEYS = {"original_max_position_embeddings": "original_max_seq_len"}


@cache
def tables(length: int, width: int, base: float, ratio: int, extra: tuple) -> tuple[Tensor, Tensor]:
    return build_rope_cache(length, width, base=base, condense_ratio=ratio, extra_config=dict(extra) or None)


def apply_rope(
    x: Tensor, positions: Tensor, base: float = 10000.0, width: int | None = None, scaling: dict | None = None
) -> Tensor:
    width, scaling = width or x.shape[-1], dict(scaling or {})
    kind = scaling.pop("rope_type", "default")
    extra = {KEYS.get(key, key): value for key, value in scaling.items()} or None
    if kind == "yarn":
        extra = (extra or {}) | {"beta_fast": 32, "beta_slow": 1, "mscale": 1.0}
    ratio = int(extra.pop("factor")) if kind == "linear" and extra else 1
    length = 1 << int(positions.max()).bit_length()
    cos, sin = tables(length, width, base, ratio, tuple((extra or {}).items()))
    turned = apply_halves(x[..., :width], cos[positions][None], sin[positions][None])
    return torch.cat([turned, x[..., width:]], -1)
