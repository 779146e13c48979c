"""curated-transformers: `QueryKeyRotaryEmbeddings`."""

from functools import cache

from curated_transformers.layers import QueryKeyRotaryEmbeddings
from torch import Tensor

REQUIRES = ("curated-transformers", "curated-tokenizers", "catalogue")


@cache
def module(base: float, share: float, head: int):
    return QueryKeyRotaryEmbeddings(base=base, fraction=share, head_width=head)


def apply_rope(x: Tensor, positions: Tensor, base: float = 10000.0, width: int | None = None) -> Tensor:
    rotary = module(base, (width or x.shape[-1]) / x.shape[-1], x.shape[-1])
    return rotary(query=x, key=x, positions=positions[None])[0]
