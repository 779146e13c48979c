"""LongRoPE: a searched factor per frequency, one set for short and one for long sequences."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from spectrope.core import require, require_least
from spectrope.encodings.base import Tag
from spectrope.encodings.parts import Constant
from spectrope.encodings.schedules.base import ROTATION, Schedule, geometric


@dataclass(frozen=True, kw_only=True)
class LongRoPE(Schedule, name="longrope"):
    r"""Divides each frequency by its own factor: :math:`\omega_j = \mathrm{base}^{-2j/d}/\lambda_j`.

    Sequences longer than the trained length L use the long factors, all others the short ones. The length of
    a sequence is its largest position plus one. Queries and keys are multiplied by :math:`\sqrt{1 + \ln s/\ln
    L}`.

    References:
        LongRoPE: Extending LLM Context Window Beyond 2 Million Tokens (Ding et al., 2024); switch and
        attention factor as in the released Phi-3 models.
    """

    laws: ClassVar[frozenset[Tag]] = ROTATION - {Tag.SHIFT_INVARIANT}
    prefix_consistent: ClassVar[bool] = False

    base: float = 10000.0
    short_factors: tuple[float, ...] = (1.0,)  # One per frequency, or one for all.
    long_factors: tuple[float, ...] = (4.0,)  # One per frequency, or one for all.
    factor: float = 4.0  # New context length over the trained one; 1 leaves queries and keys as they are.
    trained_length: int = 128  # In positions.

    def __post_init__(self) -> None:
        require(self.base > 0, self, "base", "positive")
        require(all(f > 0 for f in self.short_factors), self, "short_factors", "positive")
        require(all(f > 0 for f in self.long_factors), self, "long_factors", "positive")
        require_least(self, 1, "factor")
        require_least(self, 2, "trained_length")

    @property
    def gain(self) -> float:
        return math.sqrt(1 + math.log(self.factor) / math.log(self.trained_length))

    def frequencies(self, width: int) -> Float[Tensor, " m"]:
        return self._slowed("short_factors", width)

    def long_frequencies(self, width: int) -> Float[Tensor, " m"]:
        """Radians per position in sequences beyond the trained length."""
        return self._slowed("long_factors", width)

    def build(self, width: int) -> nn.Module:
        return SwitchedAngles(self.frequencies(width), self.long_frequencies(width), self.trained_length)

    def _slowed(self, field: str, width: int) -> Float[Tensor, " m"]:
        factors = getattr(self, field)
        require(len(factors) in (1, width // 2), self, field, f"1 or {width // 2} numbers for width {width}")
        return geometric(self.base, width) / torch.tensor(factors, dtype=torch.float64)


class SwitchedAngles(nn.Module):
    """Angles by one of two sets of frequencies, chosen by the length of each sequence.

    Args:
        short: Radians per position up to the switch, with shape (m,).
        long: Radians per position beyond it, with shape (m,).
        switch: Longest sequence that takes the short set, in positions.
    """

    def __init__(self, short: Float[Tensor, " m"], long: Float[Tensor, " m"], switch: int) -> None:
        super().__init__()
        self.short, self.long, self.switch = Constant(short), Constant(long), switch

    def forward(self, pos: Tensor) -> Float[Tensor, "b t m"]:
        """Angles of positions with shape (b or 1, t)."""
        beyond = pos.amax(-1)[..., None, None] + 1 > self.switch
        return pos[..., None] * torch.where(beyond, self.long.value, self.short.value)
