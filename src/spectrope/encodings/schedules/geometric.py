"""Frequencies in geometric progression."""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from spectrope.core import require
from spectrope.encodings.schedules.base import Schedule, geometric


@dataclass(frozen=True, kw_only=True)
class Geometric(Schedule, name="geometric"):
    r"""Frequencies in geometric progression, from one radian per position downwards:
    :math:`\omega_j = \mathrm{base}^{-2j/d}`, j = 0, ..., d/2 - 1.

    References:
        Attention Is All You Need (Vaswani et al., 2017), Sec. 3.5; RoFormer (Su et al., 2021).
    """

    base: float = 10000.0

    def __post_init__(self) -> None:
        require(self.base > 0, self, "base", "positive")

    def frequencies(self, width: int) -> Float[Tensor, " m"]:
        return geometric(self.base, width)
