"""Biases that a spiking network can compute: integer-valued logarithms of the distance."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from spectrope.core import require_least
from spectrope.encodings.base import EncodingConfig, LagBias


class LogDistance(LagBias, name="log_distance"):
    r"""Adds an integer that decreases with the logarithm of the distance:
    :math:`b_h(n) = a\max(0, B - \lceil \log_2(1+|n|) \rceil)`.

    B is the number of bits of the longest trained distance; greater distances get 0, like the most distant
    token. The bias is an integer so that it can be added to a binary attention map. Spiking neurons are not
    implemented.

    References:
        Toward Relative Positional Encoding in Spiking Transformers (Lv et al., 2025), Log-PE, which adds a
        logarithmic form of the matrix of distances to the attention map; rounding and offset are ours.
    """

    family = "relative bias"

    @dataclass(frozen=True, kw_only=True)
    class Config(EncodingConfig):
        """Range and weight of the bias."""

        n_heads: int = 16
        max_length: int = 128  # Positions of the longest sequence in training.
        amplitude: float = 1.0  # Logit units per halving of the distance.

        def __post_init__(self) -> None:
            require_least(self, 1, "n_heads", "max_length")

    def setup(self, config: "LogDistance.Config") -> None:
        self.n_heads, self.amplitude = config.n_heads, config.amplitude
        self.bits = math.ceil(math.log2(config.max_length))

    def lag_bias(self, lag: Tensor) -> Tensor:
        distance = lag.abs().to(torch.promote_types(lag.dtype, torch.float32))
        steps = (self.bits - torch.log2(1 + distance).ceil()).clamp(min=0) * self.amplitude
        return steps[..., None].expand(*lag.shape, self.n_heads)
