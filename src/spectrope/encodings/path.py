"""Positions as accumulated Householder transformations."""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from spectrope.core import ConfigError, own_precision, require_least
from spectrope.encodings.base import Context, Encoding, EncodingConfig, Form, Scope, Tag


class PaTH(Encoding, name="path"):
    r"""Multiplies keys by a product of Householder matrices of the tokens up to the query:
    :math:`q_i^\top H_i \cdots H_{j+1} k_j/\sqrt d`.

    :math:`H_l = I - \beta_l w_l w_l^\top` where the unit vector w and :math:`\beta` in (0, 2) are computed
    from the hidden state of each token: w by two low-rank projections, a causal convolution over tokens and a
    SiLU. All products are computed together, with one triangular solve per head. Queries are taken to be the
    last tokens among the keys; logits of the future are 0, so the model must mask it.

    References:
        PaTH Attention: Position Encoding via Accumulating Householder Transformations (Yang et al., 2025);
        flash-linear-attention.
    """

    family = "content-aware"
    form = Form.GENERAL
    tags = frozenset({Tag.SHIFT_INVARIANT, Tag.LEARNED})
    scope = Scope.LAYER

    @dataclass(frozen=True, kw_only=True)
    class Config(EncodingConfig):
        """Sizes of the projections."""

        d_model: int = 256
        n_heads: int = 16
        head_dim: int = 16
        rank: int = 32  # Width between the two projections.
        kernel: int = 3  # Tokens that the convolution spans.

        def __post_init__(self) -> None:
            require_least(self, 1, "d_model", "n_heads", "head_dim", "rank", "kernel")

        def fitted(self, **sizes: Any) -> "PaTH.Config":
            if not sizes.get("causal", True):
                raise ConfigError("PaTH transports keys from the past alone; it needs a causal model.")
            return super().fitted(**sizes)

    def setup(self, config: "PaTH.Config") -> None:
        inner = config.n_heads * config.head_dim
        self.down = nn.Linear(config.d_model, config.rank, bias=False)
        self.up = nn.Linear(config.rank, inner, bias=False)
        self.convolution = nn.Conv1d(inner, inner, config.kernel, groups=inner, bias=False)
        self.strength = nn.Linear(config.d_model, config.n_heads)
        self.n_heads, self.kernel = config.n_heads, config.kernel

    def reflections(self, x: Float[Tensor, "b j c"]) -> tuple[Tensor, Tensor]:
        """Unit vectors (b, h, j, d) and strengths (b, h, j, 1) of each token's transformation."""
        w = F.pad(self.up(self.down(x)).transpose(1, 2), (self.kernel - 1, 0))
        w = F.silu(self.convolution(w)).transpose(1, 2).unflatten(-1, (self.n_heads, -1)).transpose(1, 2)
        return F.normalize(w, dim=-1), 2 * self.strength(x).sigmoid().transpose(1, 2)[..., None]

    def logits(self, ctx: Context) -> Float[Tensor, "b h i j"]:
        """Attention logits of the past.

        Raises:
            UnsupportedError: If the context contains no hidden states.
            ConfigError: If there are more queries than keys.
        """
        dtype = torch.promote_types(ctx.q.dtype, torch.float32)
        states = self.states(ctx).to(self.down.weight.dtype)
        w, strength = (part.to(dtype) for part in self.reflections(states))
        q, k, past = ctx.q.to(dtype), ctx.k.to(dtype), ctx.k.shape[-2] - ctx.q.shape[-2]
        with own_precision(q):
            scaled = strength * w
            system = (scaled @ w.transpose(-1, -2)).tril(-1)
            met = (scaled @ k.transpose(-1, -2)).tril(-1)
            moved = torch.linalg.solve_triangular(system, met, upper=False, unitriangular=True)
            scores = (q @ k.transpose(-1, -2)).tril(past) - (q @ w.transpose(-1, -2)).tril(past) @ moved
        return (scores * ctx.scale).to(ctx.q.dtype)
