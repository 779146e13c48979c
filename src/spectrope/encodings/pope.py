"""Polar coordinate position embedding."""

import math
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from spectrope.core import own_precision, require, require_least
from spectrope.encodings.base import Context, Encoding, EncodingConfig, Form, Scope, Tag
from spectrope.encodings.parts import Constant


class PoPE(Encoding, name="pope"):
    r"""Takes magnitudes from content and phases from position:
    :math:`\sum_c s(q_c) s(k_c) \cos((j-i)\omega_c + \delta_c)`.

    s is softplus. Each of the d coordinates has its own frequency :math:`\omega_c = \mathrm{base}^{-c/d}`,
    whereas RoPE has one per pair, and the phase of a key does not depend on its content. The biases
    :math:`\delta` of keys are trained per head and kept in :math:`[-2\pi, 0]`. They start at 0, or are drawn
    uniformly from this interval. Divided by :math:`\sqrt d` as everywhere here.

    References:
        Decoupling the "What" and "Where" With Polar Coordinate Positional Embeddings (Gopalakrishnan et al.,
        2025); interval and sign of the biases as in PoPE-pytorch 0.2.1. That gradients pass at the ends of
        the interval is ours.
    """

    family = "rotary"
    form = Form.GENERAL
    tags = frozenset({Tag.SHIFT_INVARIANT, Tag.LEARNED})
    scope = Scope.LAYER

    @dataclass(frozen=True, kw_only=True)
    class Config(EncodingConfig):
        """Sizes and frequencies."""

        n_heads: int = 16
        head_dim: int = 16  # Width of queries and keys, all of which have a frequency.
        base: float = 10000.0
        start: Literal["zero", "uniform"] = "zero"  # Of the biases of keys.

        def __post_init__(self) -> None:
            require_least(self, 1, "n_heads", "head_dim")
            require(self.base > 0, self, "base", "positive")

    def setup(self, config: "PoPE.Config") -> None:
        powers = torch.arange(config.head_dim, dtype=torch.float64) / config.head_dim
        self.frequencies = Constant(config.base**-powers)
        delta = torch.zeros(config.n_heads, 1, config.head_dim)
        self.delta = nn.Parameter(delta.uniform_(-2 * math.pi, 0) if config.start == "uniform" else delta)

    @property
    def pairwise(self) -> bool:
        return True

    def logits(self, ctx: Context) -> Float[Tensor, "b h i j"]:
        dtype = torch.promote_types(ctx.q.dtype, torch.float32)
        q, k = F.softplus(ctx.q.to(dtype)), F.softplus(ctx.k.to(dtype))
        delta = self.delta.double()
        kept = delta + (delta.clamp(-2 * math.pi, 0) - delta).detach()  # Gradients pass at the ends.
        i, j = ((pos.double()[..., None] * self.frequencies.value)[:, None] for pos in (ctx.q_pos, ctx.k_pos))
        with own_precision(q):
            q, k = _cartesian(q, i), _cartesian(k, j + kept)
            return (q @ k.transpose(-1, -2) * ctx.scale).to(ctx.q.dtype)


def _cartesian(magnitude: Float[Tensor, "b h t d"], phase: Tensor) -> Float[Tensor, "b h t e"]:
    """Numbers in polar form as pairs of coordinates."""
    dtype = magnitude.dtype
    return torch.cat([magnitude * phase.cos().to(dtype), magnitude * phase.sin().to(dtype)], -1)
