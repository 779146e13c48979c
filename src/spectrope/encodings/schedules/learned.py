"""Trained frequencies."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from spectrope.core import require
from spectrope.encodings.base import Scope, Tag
from spectrope.encodings.schedules.base import ROTATION, Schedule, geometric


@dataclass(frozen=True, kw_only=True)
class LearnedFrequencies(Schedule, name="learned"):
    r"""Trained frequencies, stored as logarithms: :math:`\omega_j = e^{\ell_j}`, initially geometric.

    Every layer has its own frequencies. With logarithms, one learning rate is suitable for frequencies that
    span four decades.

    References:
        Rotary Position Embedding for Vision Transformer (Heo et al., 2024), where the learned frequencies are
        two-dimensional and trained directly.
    """

    laws: ClassVar[frozenset[Tag]] = ROTATION | {Tag.LEARNED}
    scope: ClassVar[Scope] = Scope.LAYER

    base: float = 10000.0  # Of the geometric start.

    def __post_init__(self) -> None:
        require(self.base > 0, self, "base", "positive")

    def frequencies(self, width: int) -> Float[Tensor, " m"]:
        return geometric(self.base, width)

    def build(self, width: int) -> nn.Module:
        return LearnedAngles(self.frequencies(width))


class LearnedAngles(nn.Module):
    """Angles by frequencies held as trained logarithms.

    Args:
        frequencies: Radians per position at the start, with shape (m,).
    """

    def __init__(self, frequencies: Float[Tensor, " m"]) -> None:
        super().__init__()
        self.logarithms = nn.Parameter(frequencies.log().to(torch.get_default_dtype()))

    def forward(self, pos: Tensor) -> Float[Tensor, "b t m"]:
        """Angles of positions with shape (b or 1, t)."""
        return pos[..., None] * self.logarithms.double().exp()
