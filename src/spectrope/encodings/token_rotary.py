"""Rotations whose angles accumulate over tokens: CARoPE and Selective RoPE."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from spectrope.core import own_precision, require, require_least
from spectrope.encodings.base import Context, Encoding, EncodingConfig, Form, Scope, Tag
from spectrope.encodings.parts import Constant, Pairing, multiply_pairs
from spectrope.encodings.schedules.base import geometric


class TokenRotary(Encoding):
    r"""Base of rotations by angles that accumulate over tokens:
    :math:`\varphi_j(t) = \sum_{l \le t} f_j(x_l)`.

    Logits are :math:`\mathrm{Re}\sum_j q_j \bar k_j e^{i(\varphi_j(m) - \varphi_j(n))}/\sqrt d`: they
    depend on the tokens in between and not on positions. Queries are taken to be the last tokens among the
    keys.
    """

    family = "content-aware"
    form = Form.GENERAL
    tags = frozenset({Tag.SHIFT_INVARIANT, Tag.LEARNED})
    scope = Scope.LAYER
    pairing: Pairing = "halves"

    @abstractmethod
    def steps(self, x: Float[Tensor, "b t c"]) -> Float[Tensor, "b h t m"]:
        """Radians by which each token turns each pair of each head, in float32 at least."""

    def logits(self, ctx: Context) -> Float[Tensor, "b h i j"]:
        """Attention logits.

        Raises:
            UnsupportedError: If the context contains no hidden states.
            ConfigError: If there are more queries than keys.
        """
        angles = self.steps(self.states(ctx)).double().cumsum(2)
        turn = torch.polar(torch.ones_like(angles), angles)
        dtype = torch.promote_types(ctx.q.dtype, torch.float32)
        q = multiply_pairs(ctx.q.to(dtype), turn[:, :, -ctx.q.shape[-2] :], self.pairing)
        k = multiply_pairs(ctx.k.to(dtype), turn, self.pairing)
        with own_precision(q):
            return (q @ k.transpose(-1, -2) * ctx.scale).to(ctx.q.dtype)


def _require_even(config: Any) -> None:
    even = config.head_dim > 0 and config.head_dim % 2 == 0
    require(even, config, "head_dim", "even and positive", "Rotations act on pairs of coordinates.")


class CARoPE(TokenRotary, name="carope"):
    r"""RoPE whose frequencies depend on the tokens, per head:
    :math:`\varphi_{hj}(t) = \sum_{l \le t} f_h(x_l)^{\,j}`.

    RoPE rotates pair j by :math:`\theta^j` per token; here each token has its own :math:`\theta` per head,
    :math:`f_h(x) = 1/(1 + \mathrm{softplus}(w_h x))`, which lies between 0 and 1. Pairs are counted from
    0, so that the first turns by one radian per token, as RoPE's does.

    References:
        Context-aware Rotary Position Embedding (Veisi et al., 2025), from its abstract: a bounded map of
        the token sets frequencies per head, whose phases accumulate; the formula of the map is ours.
    """

    @dataclass(frozen=True, kw_only=True)
    class Config(EncodingConfig):
        """CARoPE has only the sizes of its map to configure."""

        d_model: int = 256
        n_heads: int = 16
        head_dim: int = 16

        def __post_init__(self) -> None:
            _require_even(self)
            require_least(self, 1, "d_model", "n_heads")

    def setup(self, config: "CARoPE.Config") -> None:
        self.map = nn.Linear(config.d_model, config.n_heads, bias=False)
        self.powers = Constant(torch.arange(config.head_dim // 2))

    def steps(self, x: Float[Tensor, "b t c"]) -> Float[Tensor, "b h t m"]:
        with own_precision(x):
            pace = self.map(x.to(self.map.weight.dtype)).double().transpose(1, 2)
        return (1 + F.softplus(pace))[..., None] ** -self.powers.value.double()


class SelectiveRoPE(TokenRotary, name="selective_rope"):
    r"""RoPE whose angles are cumulative sums of learned functions of the tokens:
    :math:`\varphi_{hj}(t) = \tau_j \sum_{l \le t} g_h(x_l) (c * W x)_{hj,l}`.

    W has a low rank and sees normalised hidden states, c is a causal convolution over tokens per pair, g is a
    sigmoid gate per head, and the temperatures :math:`\tau_j = \mathrm{base}^{-2j/d}` are RoPE's frequencies.
    Angles may be of either sign. The paper uses it in linear attention with decay as well; see
    `linear_attention`.

    References:
        Selective Rotary Position Embedding (Movahedi et al., 2025); the authors' code, with its gate on.
    """

    @dataclass(frozen=True, kw_only=True)
    class Config(EncodingConfig):
        """Sizes of the projections."""

        d_model: int = 256
        n_heads: int = 16
        head_dim: int = 16
        rank: int = 16  # Width between the two projections.
        kernel: int = 4  # Tokens that the convolution spans.
        base: float = 500000.0  # Of the temperatures.

        def __post_init__(self) -> None:
            _require_even(self)
            require_least(self, 1, "d_model", "n_heads", "rank", "kernel")
            require(self.base > 0, self, "base", "positive")

    def setup(self, config: "SelectiveRoPE.Config") -> None:
        inner = config.n_heads * config.head_dim // 2
        self.down = nn.Linear(config.d_model, config.rank, bias=False)
        self.up = nn.Linear(config.rank, inner, bias=False)
        self.convolution = nn.Conv1d(inner, inner, config.kernel, groups=inner, bias=False)
        self.gate = nn.Linear(config.d_model, config.n_heads)
        self.temperatures = Constant(geometric(config.base, config.head_dim))
        self.n_heads, self.kernel = config.n_heads, config.kernel

    def steps(self, x: Float[Tensor, "b t c"]) -> Float[Tensor, "b h t m"]:
        with own_precision(x):
            x = F.normalize(x.to(torch.promote_types(x.dtype, torch.float32)), dim=-1).to(
                self.gate.weight.dtype
            )
            turns = F.pad(self.up(self.down(x)).transpose(1, 2), (self.kernel - 1, 0))
            turns = self.convolution(turns).transpose(1, 2).unflatten(-1, (self.n_heads, -1)).transpose(1, 2)
            gates = self.gate(x).sigmoid().transpose(1, 2)[..., None]
        return gates.double() * turns.double() * self.temperatures.value
