"""Attention of a mixture of heads, each group on the kernel that serves it best."""

import torch
from torch import Tensor

from spectrope.attention.base import IMPLEMENTATIONS, Implementation, attention
from spectrope.core.noise import Noise
from spectrope.encodings.base import Context, Encoding, Form


def by_parts(ctx: Context, v: Tensor, encoding: Encoding, causal: bool, noise: Noise | None) -> Tensor:
    """The groups of `encoding.parts()` one by one, so that a group without a fast kernel slows no other."""
    outputs = []
    for heads, part in encoding.parts():
        own = ctx.of_heads(heads)
        outputs.append(attention(own, v[:, heads], part, causal=causal, impl="fastest", noise=noise))
    return torch.cat(outputs, 1)


IMPLEMENTATIONS.register("parts", Implementation(by_parts, forms=frozenset(Form)))
