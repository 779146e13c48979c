"""Learned absolute positions."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from spectrope.core import require_least
from spectrope.encodings.base import Encoding, EncodingConfig, Tag
from spectrope.encodings.parts import lookup


class Learned(Encoding, name="learned"):
    r"""Adds a trained vector per position to the input: :math:`x_p + e_p`, for :math:`0 \le p <` max_length.

    Raises:
        UnsupportedError: If a position lies outside the table.

    References:
        Convolutional Sequence to Sequence Learning (Gehring et al., 2017).
    """

    family = "absolute"
    tags = frozenset({Tag.CONTENT_FREE, Tag.LEARNED})

    @dataclass(frozen=True, kw_only=True)
    class Config(EncodingConfig):
        """Size and initialisation of the table."""

        d_model: int = 256  # Width of the input.
        max_length: int = 128  # Rows, one per position.
        std: float = 0.02  # Standard deviation of the initial entries.

        def __post_init__(self) -> None:
            require_least(self, 1, "d_model", "max_length")
            require_least(self, 0, "std")

    def setup(self, config: "Learned.Config") -> None:
        self.table = nn.Parameter(torch.randn(config.max_length, config.d_model) * config.std)

    def embed(self, x: Float[Tensor, "b t c"], pos: Tensor) -> Float[Tensor, "b t c"]:
        return x + lookup(self.table, pos, self).to(x.dtype)
