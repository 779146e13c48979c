"""NTK-aware scaling, at a fixed factor and growing with the sequence."""

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
class NTK(Schedule, name="ntk"):
    r"""A larger base, which divides the lowest frequency by s and keeps the highest.

    :math:`\omega_j = (\mathrm{base}\cdot s^{d/(d-2)})^{-2j/d}`.

    References:
        YaRN: Efficient Context Window Extension of Large Language Models (Peng et al., 2023),
        on NTK-aware interpolation.
    """

    base: float = 10000.0
    factor: float = 4.0  # New context length over the trained one.

    def __post_init__(self) -> None:
        require(self.base > 0, self, "base", "positive")
        require(self.factor > 0, self, "factor", "positive")

    def frequencies(self, width: int) -> Float[Tensor, " m"]:
        return geometric(self.base, width) * ntk_slowdown(
            width, torch.tensor(self.factor, dtype=torch.float64)
        )


@dataclass(frozen=True, kw_only=True)
class DynamicNTK(Schedule, name="dynamic_ntk"):
    r"""NTK-aware scaling that starts where the trained length L ends, and grows with the sequence's length n:
    :math:`\omega_j = (\mathrm{base}\cdot s_n^{d/(d-2)})^{-2j/d},\; s_n = s\max(n, L)/L - (s - 1)`. Earlier
    tokens turn differently once a sequence grows, so rotated keys must not be kept between calls.

    The length of each sequence is its largest position plus one.

    References:
        YaRN: Efficient Context Window Extension of Large Language Models (Peng et al., 2023); the
        form of s_n is that of Hugging Face's transformers.
    """

    laws: ClassVar[frozenset[Tag]] = ROTATION - {Tag.SHIFT_INVARIANT}
    prefix_consistent: ClassVar[bool] = False

    base: float = 10000.0
    factor: float = 4.0  # How fast the scale grows with length.
    trained_length: int = 128  # Positions up to which nothing is scaled.

    def __post_init__(self) -> None:
        require(self.base > 0, self, "base", "positive")
        require_least(self, 1, "factor", "trained_length")

    def frequencies(self, width: int) -> Float[Tensor, " m"]:
        return geometric(self.base, width)

    def build(self, width: int) -> nn.Module:
        return DynamicAngles(self, width)


class DynamicAngles(nn.Module):
    """Angles under a base that grows with the length of each sequence.

    Args:
        schedule: The rule.
        width: Width of the rotated vectors.
    """

    def __init__(self, schedule: DynamicNTK, width: int) -> None:
        super().__init__()
        self.factor, self.trained_length, self.width = schedule.factor, schedule.trained_length, width
        self.frequencies = Constant(schedule.frequencies(width))

    def forward(self, pos: Tensor) -> Float[Tensor, "b t m"]:
        """Angles of positions with shape (b or 1, t)."""
        length = (pos.double().amax(-1) + 1).clamp(min=self.trained_length)
        scale = self.factor * length / self.trained_length - (self.factor - 1)
        frequencies = self.frequencies.value * ntk_slowdown(self.width, scale)
        return pos[..., None] * frequencies[..., None, :]


def ntk_slowdown(width: int, scale: Tensor) -> Tensor:
    r"""Factors :math:`s^{-2j/(d-2)}` on geometric frequencies, for scales of shape (*b,): returns (*b, m)."""
    j = torch.arange(width // 2, dtype=torch.float64, device=scale.device)
    return scale[..., None] ** (-2 * j / max(width - 2, 1))
