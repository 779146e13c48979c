"""Learned table of relative positions, as a product."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from spectrope.core import require_least
from spectrope.encodings.base import EncodingConfig, LagBias, Scope, Tag
from spectrope.encodings.parts import lookup


class FactorisedTable(LagBias, name="factorised"):
    r"""Adds a bias per head and lag that is an inner product of trained vectors:
    :math:`b_h(n) = u_h^\top v_{h,\,n}`, for :math:`|n| <`
    max_length.

    A control: position acts additively, as in `RelativeTable`, but through a product of two trained factors,
    as content does through queries and keys. It shows whether one head outgrows the others because of the
    product or because of the coupling of content with position.

    Raises:
        UnsupportedError: When it meets a lag that its table does not hold.

    References:
        Implicit Regularization in Deep Matrix Factorization (Arora et al., 2019), at depth two; the table
        is that of Swin Transformer (Liu et al., 2021).
    """

    family = "relative bias"
    tags = LagBias.tags | {Tag.LEARNED}
    scope = Scope.LAYER

    @dataclass(frozen=True, kw_only=True)
    class Config(EncodingConfig):
        """Size and initialisation of the factors."""

        n_heads: int = 16
        max_length: int = 128  # Lags below it have a vector, in both directions.
        rank: int = 16  # Length of the vectors.
        std: float = 0.1  # Standard deviation of the initial entries.

        def __post_init__(self) -> None:
            require_least(self, 1, "n_heads", "max_length", "rank")
            require_least(self, 0, "std")

    def setup(self, config: "FactorisedTable.Config") -> None:
        self.reach = config.max_length - 1
        self.heads = nn.Parameter(torch.randn(config.n_heads, config.rank) * config.std)
        self.lags = nn.Parameter(torch.randn(2 * self.reach + 1, config.n_heads, config.rank) * config.std)

    def lag_bias(self, lag: Tensor) -> Tensor:
        return lookup((self.lags * self.heads).sum(-1), lag + self.reach, self)
