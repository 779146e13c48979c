"""Sandwich: the inner product of sinusoidal positions, as a bias."""

from dataclasses import dataclass

import torch
from torch import Tensor

from spectrope.core import require, require_least
from spectrope.encodings.base import EncodingConfig, LagBias
from spectrope.encodings.parts import Constant
from spectrope.encodings.schedules.base import geometric


class Sandwich(LagBias, name="sandwich"):
    r"""Adds the inner product of sinusoidal positions, scaled per head:
    :math:`b_h(n) = \frac{H}{8h} \sum_j (\cos n\omega_j - 1)`.

    Heads are h = 1, ..., H; frequencies :math:`\omega_j = \mathrm{base}^{-2j/w}`, j = 1, ..., w/2, in radians
    per position. The bias is 0 at lag 0, as in NVIDIA's NeMo, whose attention differs from the paper's by
    this constant only.

    References:
        Dissecting Transformer Length Extrapolation via the Lens of Receptive Field Analysis (Chi et al.,
        2023).
    """

    family = "relative bias"

    @dataclass(frozen=True, kw_only=True)
    class Config(EncodingConfig):
        """Width and frequencies of the sinusoids."""

        n_heads: int = 16
        width: int = 128  # Of the sinusoidal vectors, twice the number of frequencies.
        base: float = 10000.0

        def __post_init__(self) -> None:
            require_least(self, 1, "n_heads")
            require(self.width > 0 and self.width % 2 == 0, self, "width", "even and positive")
            require(self.base > 0, self, "base", "positive")

    def setup(self, config: "Sandwich.Config") -> None:
        self.frequencies = Constant(geometric(config.base, config.width) * config.base ** (-2 / config.width))
        heads = torch.arange(1, config.n_heads + 1, dtype=torch.float64)
        self.weights = Constant(config.n_heads / (8 * heads))

    def lag_bias(self, lag: Tensor) -> Tensor:
        kernel = ((lag[..., None] * self.frequencies.value).cos() - 1).sum(-1)
        bias = kernel[..., None] * self.weights.value
        return bias.to(torch.promote_types(lag.dtype, torch.float32))
