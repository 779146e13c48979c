"""Sinusoidal absolute positions."""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from spectrope.core import require
from spectrope.encodings.base import Encoding, EncodingConfig, Tag
from spectrope.encodings.schedules.geometric import Geometric


class Sinusoidal(Encoding, name="sinusoidal"):
    r"""Adds sines and cosines of the position to the input:
    :math:`x_p + (\sin p\omega_j, \cos p\omega_j)_{j < c/2}`.

    Frequencies :math:`\omega_j = \mathrm{base}^{-2j/c}` are in radians per position, c is `d_model`.

    References:
        Attention Is All You Need (Vaswani et al., 2017), Sec. 3.5.
    """

    family = "absolute"
    tags = frozenset({Tag.CONTENT_FREE})

    @dataclass(frozen=True, kw_only=True)
    class Config(EncodingConfig):
        """Frequencies and layout of the waves."""

        d_model: int = 256  # Width of the input.
        base: float = 10000.0  # Ratio of the longest wavelength to the shortest, nearly.
        layout: Literal["interleaved", "halves"] = (
            "interleaved"  # The paper's; Marian's puts all sines first.
        )

        def __post_init__(self) -> None:
            even = self.d_model > 0 and self.d_model % 2 == 0
            require(even, self, "d_model", "even and positive", "Each frequency takes a sine and a cosine.")
            require(self.base > 0, self, "base", "positive")

    def setup(self, config: "Sinusoidal.Config") -> None:
        self.joined = torch.stack if config.layout == "interleaved" else torch.cat
        self.angles = Geometric(base=config.base).build(config.d_model)

    def embed(self, x: Float[Tensor, "b t c"], pos: Tensor) -> Float[Tensor, "b t c"]:
        angles = self.angles(pos)
        waves = self.joined([angles.sin(), angles.cos()], -1)
        return x + waves.reshape(*pos.shape, -1).to(x.dtype)
