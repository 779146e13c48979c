"""Relative position representations of keys and values."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from spectrope.core import require_least
from spectrope.encodings.base import Context, Encoding, EncodingConfig, Form, Scope, Tag
from spectrope.encodings.parts import at_lags, clipped


class Shaw(Encoding, name="shaw"):
    r"""Adds trained vectors of the clipped lag to keys and values: :math:`q_i (k_j + a_{c(i-j)})/\sqrt d`.

    Outputs are :math:`\sum_j A_{ij} (v_j + a'_{c(i-j)})`, where :math:`c(n)` clips lags at the largest
    distance. Heads share both tables, each layer has its own.

    References:
        Self-Attention with Relative Position Representations (Shaw et al., 2018).
    """

    family = "relative bias"
    tags = frozenset({Tag.SHIFT_INVARIANT, Tag.LEARNED})
    scope = Scope.LAYER

    @dataclass(frozen=True, kw_only=True)
    class Config(EncodingConfig):
        """Size and start of the tables."""

        head_dim: int = 16
        max_distance: int = 16  # Distance from which all share a vector, in positions.
        values: bool = True  # Whether values have vectors too.
        std: float = 0.02  # Standard deviation of the initial entries.

        def __post_init__(self) -> None:
            require_least(self, 1, "head_dim", "max_distance")
            require_least(self, 0, "std")

    def setup(self, config: "Shaw.Config") -> None:
        self.reach = config.max_distance
        rows = 2 * config.max_distance + 1
        self.keys = nn.Parameter(torch.randn(rows, config.head_dim) * config.std)
        self.values = nn.Parameter(torch.randn(rows, config.head_dim) * config.std) if config.values else None
        self.form = Form.GENERAL if config.values else Form.DOT_PLUS_BIAS

    @property
    def pairwise(self) -> bool:
        return True

    def bias(self, ctx: Context) -> Tensor:
        scores = ctx.q @ self.keys.to(ctx.q.dtype).T * ctx.scale
        return at_lags(scores, clipped(ctx.lag, self.reach))

    def read(self, pattern: Float[Tensor, "b h i j"], v: Float[Tensor, "b h j e"], ctx: Context) -> Tensor:
        out = pattern @ v
        if self.values is None:
            return out
        shares = pattern.new_zeros(*pattern.shape[:-1], len(self.values))
        index = clipped(ctx.lag, self.reach)[:, None].expand_as(pattern)
        return out + shares.scatter_add(-1, index, pattern) @ self.values.to(v.dtype)
