"""Random absolute positions."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from spectrope.core import require_least, torch_stream
from spectrope.encodings.base import Encoding, EncodingConfig, Tag
from spectrope.encodings.parts import lookup


class RandomVectors(Encoding, name="random"):
    r"""Adds a fixed random vector per position to the input:
    :math:`x_p + e_p`, :math:`e_p \sim \mathcal N(0, I)`.

    The vectors depend only on the seed and are saved with the model.

    Raises:
        UnsupportedError: If a position lies outside the table.

    References:
        Unpacking Positional Encoding in Transformers (Gu et al., 2025), Sec. 4.1.
    """

    family = "absolute"
    tags = frozenset({Tag.CONTENT_FREE})
    table: Tensor

    @dataclass(frozen=True, kw_only=True)
    class Config(EncodingConfig):
        """Size and seed of the table."""

        d_model: int = 256  # Width of the input.
        max_length: int = 128  # Rows, one per position.
        seed: int = 0  # Names the vectors.
        trainable: bool = False  # R6. Whether training moves the vectors.

        def __post_init__(self) -> None:
            require_least(self, 1, "d_model", "max_length")

    def setup(self, config: "RandomVectors.Config") -> None:
        stream = torch_stream(config.seed, "random positions")
        table = torch.randn(config.max_length, config.d_model, generator=stream)
        if config.trainable:
            self.table = nn.Parameter(table)
            self.tags = self.tags | {Tag.LEARNED}
        else:
            self.register_buffer("table", table)

    def embed(self, x: Float[Tensor, "b t c"], pos: Tensor) -> Float[Tensor, "b t c"]:
        return x + lookup(self.table, pos, self).to(x.dtype)
