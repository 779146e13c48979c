"""Attention by torch's fused kernels, pinned so that torch cannot fall back to its unfused path."""

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from spectrope.attention.base import IMPLEMENTATIONS, Implementation, additive_bias
from spectrope.core import Noise
from spectrope.encodings import Context, Encoding, Form, Tag

BACKENDS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION]

ALIGNED = 8  # Kernels on CUDA take multiples of this width in every precision.


def fused(ctx: Context, v: Tensor, encoding: Encoding, causal: bool, noise: Noise | None) -> Tensor:
    """`scaled_dot_product_attention` on rotated queries and keys, with bias and mask as one additive mask."""
    q = encoding.rotate(encoding.scaled(ctx.q), ctx.q_pos, "query")
    k = encoding.rotate(ctx.k, ctx.k_pos, "key")
    bias, is_causal = additive_bias(ctx, encoding, causal)
    if bias is not None:
        bias = bias.to(q.dtype).expand(*q.shape[:-1], k.shape[-2])
    value_dim, width = v.shape[-1], -(-max(q.shape[-1], v.shape[-1]) // ALIGNED) * ALIGNED
    q, k, v = (_widened(x, width) for x in (q, k, v))  # flash takes one width for all three
    with sdpa_kernel(BACKENDS):
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=bias, is_causal=is_causal, scale=ctx.scale)
    return out[..., :value_dim]


def _widened(x: Tensor, width: int) -> Tensor:
    return x if x.shape[-1] == width else F.pad(x, (0, width - x.shape[-1]))


def _limit(encoding: Encoding, device: torch.device, dtype: torch.dtype) -> str | None:
    of_content = (
        encoding.form is Form.DOT_PLUS_BIAS
    )  # such a bias has a gradient even where nothing is learned
    learned = encoding.form is not Form.DOT and Tag.LEARNED in encoding.tags
    if device.type == "cpu" and (of_content or learned):
        return "has no gradient for a bias that needs one on a CPU"
    if device.type == "cuda" and dtype is torch.float64:
        return "has no kernel for float64 on CUDA"
    return None


IMPLEMENTATIONS.register(
    "fused", Implementation(fused, forms=frozenset(Form) - {Form.GENERAL}, dropout=False, limit=_limit)
)
