"""GRAPE, additive: biases that sum gates of the query along the way to the key."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from spectrope.core import own_precision, require, require_least
from spectrope.encodings.alibi import alibi_slopes
from spectrope.encodings.base import Context, Encoding, EncodingConfig, Form, Scope, Tag
from spectrope.encodings.parts import Constant, multiply_pairs


class GRAPEPath(Encoding, name="grape_ap"):
    r"""Adds logarithms of gates that depend on the query, summed over the tokens in between:
    :math:`m_h \sum_{l=j+1}^{i} \ln\sigma(p_i^\top R_{l} \hat p_l/w)`.

    :math:`p = W_h x` has width w, :math:`\hat p` is p divided by its root mean square, :math:`R_l` turns all
    pairs by l radians, l a token's position, and :math:`m_h` are ALiBi's slopes. If the gate depends only on
    l, this is `fox` for slopes 1; if it is a constant c, it is `alibi` times :math:`-\ln\sigma(c)`. The
    tests compute both, and RoPE, as products of the group elements named in the paper. Queries are taken to
    be the last tokens among the keys; the bias is 0 for keys after the query.

    References:
        Group Representational Position Encoding (Zhang et al., 2026), additive, path integral; the authors'
        code.
    """

    family = "content-aware"
    form = Form.DOT_PLUS_BIAS
    tags = frozenset({Tag.LEARNED})
    scope = Scope.LAYER

    @dataclass(frozen=True, kw_only=True)
    class Config(EncodingConfig):
        """Sizes of the projection."""

        d_model: int = 256
        n_heads: int = 16
        width: int = 8  # Of the projection, in coordinates per head; even.

        def __post_init__(self) -> None:
            require_least(self, 1, "d_model", "n_heads")
            even = self.width > 0 and self.width % 2 == 0
            require(even, self, "width", "even and positive", "The projection is turned in pairs.")

    def setup(self, config: "GRAPEPath.Config") -> None:
        self.projection = nn.Linear(config.d_model, config.n_heads * config.width, bias=False)
        self.slopes = Constant(alibi_slopes(config.n_heads))
        self.n_heads = config.n_heads

    def bias(self, ctx: Context) -> Tensor:
        """The bias of every head.

        Raises:
            UnsupportedError: If the context contains no hidden states.
            ConfigError: If there are more queries than keys.
        """
        with own_precision(ctx.q):
            dtype = torch.promote_types(self.projection.weight.dtype, torch.float32)
            p = self.projection(self.states(ctx).to(self.projection.weight.dtype)).to(dtype)
            p = p.unflatten(-1, (self.n_heads, -1)).transpose(1, 2)
            angles = ctx.k_pos.double()[:, None, :, None].expand(-1, -1, -1, p.shape[-1] // 2)
            turn = torch.polar(torch.ones_like(angles), angles)
            turned = multiply_pairs(F.rms_norm(p, p.shape[-1:]), turn, "halves")
            rows = p[:, :, -ctx.q.shape[-2] :]
            gates = F.logsigmoid(rows @ turned.transpose(-1, -2) / p.shape[-1])
        past = ctx.k.shape[-2] - ctx.q.shape[-2]
        gates = gates.tril(past) * self.slopes.value.to(dtype)[:, None, None]
        return (gates.sum(-1, keepdim=True) - gates.cumsum(-1)).tril(past)
