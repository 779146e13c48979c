"""The schedule of Llama 3.1."""

import math
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from spectrope.core import require, require_least
from spectrope.encodings.schedules.base import Schedule, geometric


@dataclass(frozen=True, kw_only=True)
class Llama3(Schedule, name="llama3"):
    r"""Slows long wavelengths by s, keeps short ones, and interpolates in between:
    :math:`\omega_j' = (\gamma_j + (1 - \gamma_j)/s)\,\omega_j`.

    With :math:`n_j = L\omega_j/2\pi` turns in the trained length L, the share kept is
    :math:`\gamma_j = (n_j - \mathrm{low})/(\mathrm{high} - \mathrm{low})` within [0, 1].

    References:
        The Llama 3 Herd of Models (2024); formula of Meta's released model code.
    """

    base: float = 500000.0
    factor: float = 8.0  # By which the longest wavelengths are slowed.
    low_freq_factor: float = 1.0  # Turns below which a frequency is slowed by the whole factor.
    high_freq_factor: float = 4.0  # Turns above which a frequency stays as it is.
    trained_length: int = 8192  # In positions.

    def __post_init__(self) -> None:
        require(self.base > 0, self, "base", "positive")
        require_least(self, 1, "factor", "trained_length")
        require(self.low_freq_factor > 0, self, "low_freq_factor", "positive")
        above = self.high_freq_factor > self.low_freq_factor
        require(above, self, "high_freq_factor", "above low_freq_factor")

    def frequencies(self, width: int) -> Float[Tensor, " m"]:
        frequencies = geometric(self.base, width)
        turns = frequencies * self.trained_length / (2 * math.pi)
        blend = (turns - self.low_freq_factor) / (self.high_freq_factor - self.low_freq_factor)
        kept = blend.clamp(0, 1)
        return frequencies * (kept + (1 - kept) / self.factor)
