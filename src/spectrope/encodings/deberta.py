"""DeBERTa's disentangled attention."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from spectrope.core import require_least
from spectrope.encodings.base import Context, Encoding, EncodingConfig, Form, Scope, Tag
from spectrope.encodings.parts import at_lags


class DeBERTa(Encoding, name="deberta"):
    r"""Adds content-to-position and position-to-content scores of clipped lags:
    :math:`q_i k_j + q_i K_{c(i-j)} + k_j Q_{c(i-j)}`.

    All three are divided by :math:`\sqrt{3d}`. K and Q project one trained table of 2k clipped lags,
    :math:`c(n) = n + k` within [0, 2k - 1]. Here each layer has its own table; the authors' layers share one.
    The lag of the last term is i - j, as in their code; the formula in the paper has j - i.

    References:
        DeBERTa: Decoding-enhanced BERT with Disentangled Attention (He et al., 2021).
    """

    family = "relative bias"
    form = Form.DOT_PLUS_BIAS
    logit_scale = 3**-0.5
    tags = frozenset({Tag.SHIFT_INVARIANT, Tag.LEARNED})
    scope = Scope.LAYER

    @dataclass(frozen=True, kw_only=True)
    class Config(EncodingConfig):
        """Sizes of the table and its projections."""

        d_model: int = 256  # Width of the table.
        n_heads: int = 16
        head_dim: int = 16
        max_distance: int = 128  # Distance k from which all share a row, in positions.
        std: float = 0.02  # Standard deviation of the initial entries.

        def __post_init__(self) -> None:
            require_least(self, 1, "d_model", "n_heads", "head_dim", "max_distance")
            require_least(self, 0, "std")

    def setup(self, config: "DeBERTa.Config") -> None:
        self.reach, inner = config.max_distance, config.n_heads * config.head_dim
        self.table = nn.Parameter(torch.randn(2 * config.max_distance, config.d_model) * config.std)
        self.keys = nn.Linear(config.d_model, inner, bias=False)
        self.queries = nn.Linear(config.d_model, inner)
        self.n_heads = config.n_heads
        for projection in (self.keys, self.queries):
            nn.init.normal_(projection.weight, std=config.std)
        nn.init.zeros_(self.queries.bias)

    @property
    def pairwise(self) -> bool:
        return True

    def bias(self, ctx: Context) -> Tensor:
        dtype = ctx.q.dtype
        keys, queries = self._heads(self.keys, dtype), self._heads(self.queries, dtype)
        to_lag = at_lags(ctx.q @ keys.transpose(-1, -2), self._rows(ctx.lag))
        from_lag = at_lags(ctx.k @ queries.transpose(-1, -2), self._rows(ctx.lag.transpose(-1, -2)))
        return (to_lag + from_lag.transpose(-1, -2)) * (ctx.scale * self.logit_scale)

    def _heads(self, projection: nn.Linear, dtype: torch.dtype) -> Float[Tensor, "h n d"]:
        return projection(self.table).to(dtype).unflatten(-1, (self.n_heads, -1)).transpose(0, 1)

    def _rows(self, lag: Tensor) -> Int[Tensor, "b i j"]:
        return (lag.long() + self.reach).clamp(0, 2 * self.reach - 1)
