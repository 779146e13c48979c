"""p-RoPE: the lowest frequencies are zero."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from spectrope.core import require
from spectrope.encodings.schedules.base import Schedule, geometric


@dataclass(frozen=True, kw_only=True)
class Proportional(Schedule, name="proportional"):
    r"""Keeps the highest frequencies and sets the others to zero:
    :math:`\omega_j = \mathrm{base}^{-2j/d}\,[j < \lfloor p\,d/2 \rfloor]`.

    The first :math:`\lfloor p\,d/2 \rfloor` pairs rotate; the others carry only content. The product is that
    of floating-point numbers, as in transformers: 0.29 of 100 pairs are 28.

    References:
        Round and Round We Go! What Makes Rotary Positional Encodings Useful? (Barbero et al., 2024).
    """

    base: float = 10000.0
    fraction: float = 0.75  # Share p of the pairs that turn.

    def __post_init__(self) -> None:
        require(self.base > 0, self, "base", "positive")
        require(0 <= self.fraction <= 1, self, "fraction", "between 0 and 1")

    def frequencies(self, width: int) -> Float[Tensor, " m"]:
        turning = torch.arange(width // 2) < int(self.fraction * width / 2)
        return geometric(self.base, width) * turning
