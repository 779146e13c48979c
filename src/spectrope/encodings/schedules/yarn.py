"""Yet another RoPE extension."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from spectrope.core import require, require_least
from spectrope.encodings.schedules.base import Schedule, geometric


@dataclass(frozen=True, kw_only=True)
class YaRN(Schedule, name="yarn"):
    r"""Slows pairs that complete few turns within the trained length, with a ramp in between.

    :math:`\omega_j = (\gamma_j + (1 - \gamma_j)/s)\,\mathrm{base}^{-2j/d}`, with a ramp :math:`\gamma_j`
    from 1 (more than `beta_fast` turns in the trained length) to 0 (fewer than `beta_slow`), which begins at
    pair 0 or later. Queries and keys are multiplied by `attention_factor`, by default :math:`0.1 \ln s + 1`.

    References:
        YaRN: Efficient Context Window Extension of Large Language Models (Peng et al., 2023); the ramp
        runs over indices j, as in the authors' code.
    """

    base: float = 10000.0
    factor: float = 4.0  # New context length over the trained one.
    trained_length: int = 2048  # In positions.
    beta_fast: float = 32.0  # Turns above which a frequency stays as it is.
    beta_slow: float = 1.0  # Turns below which a frequency is slowed by the whole factor.
    attention_factor: float | None = None  # On queries and keys; None computes it from the factor.
    truncate: bool = True  # Whether the ramp's ends are rounded outwards to whole indices.

    def __post_init__(self) -> None:
        require(self.base > 1, self, "base", "above 1")
        require_least(self, 1, "factor", "trained_length")
        require(self.beta_slow > 0, self, "beta_slow", "positive")
        require(self.beta_fast >= self.beta_slow, self, "beta_fast", "at least beta_slow")
        require(math.isfinite(self.factor), self, "factor", "finite")
        usable = self.attention_factor is None or 0 < self.attention_factor < math.inf
        require(usable, self, "attention_factor", "positive and finite")

    @property
    def gain(self) -> float:
        return 0.1 * math.log(self.factor) + 1 if self.attention_factor is None else self.attention_factor

    def frequencies(self, width: int) -> Float[Tensor, " m"]:
        low, high = self._ramp_ends(width)
        slowed = ((torch.arange(width // 2, dtype=torch.float64) - low) / (high - low)).clamp(0, 1)
        return geometric(self.base, width) * (1 - slowed + slowed / self.factor)

    def _ramp_ends(self, width: int) -> tuple[float, float]:
        """Indices of the frequencies that make `beta_fast` and `beta_slow` turns in the trained length."""
        turns = (self.beta_fast, self.beta_slow)
        ends = [math.log(self.trained_length / (n * 2 * math.pi), self.base) * width / 2 for n in turns]
        low, high = (math.floor(ends[0]), math.ceil(ends[1])) if self.truncate else ends
        low = max(float(low), 0.0)
        return low, max(min(float(high), width - 1), low + 0.001)  # the authors' guard against dividing by 0
