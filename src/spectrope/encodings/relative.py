"""Learned table of relative positions."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from spectrope.core import require_least
from spectrope.encodings.base import EncodingConfig, LagBias, Scope, Tag
from spectrope.encodings.parts import lookup


class RelativeTable(LagBias, name="relative"):
    r"""Adds a trained bias per head and lag: :math:`b_h(n) = t_{n,\,h}`, for :math:`|n| <` max_length.

    Raises:
        UnsupportedError: When it meets a lag that its table does not hold.

    References:
        Swin Transformer (Liu et al., 2021), in one dimension; the released code of Unpacking Positional
        Encoding in Transformers (Gu et al., 2025), R4.
    """

    family = "relative bias"
    tags = LagBias.tags | {Tag.LEARNED}
    scope = Scope.LAYER

    @dataclass(frozen=True, kw_only=True)
    class Config(EncodingConfig):
        """Size and initialisation of the table."""

        n_heads: int = 16
        max_length: int = 128  # The table has 2 * max_length - 1 rows.
        std: float = 0.02  # Standard deviation of the initial entries.

        def __post_init__(self) -> None:
            require_least(self, 1, "n_heads", "max_length")
            require_least(self, 0, "std")

    def setup(self, config: "RelativeTable.Config") -> None:
        self.reach = config.max_length - 1
        self.table = nn.Parameter(torch.randn(2 * self.reach + 1, config.n_heads) * config.std)

    def lag_bias(self, lag: Tensor) -> Tensor:
        return lookup(self.table, lag + self.reach, self)
