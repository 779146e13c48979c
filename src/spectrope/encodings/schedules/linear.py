"""Linear position interpolation."""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from spectrope.core import require
from spectrope.encodings.schedules.base import Schedule, geometric


@dataclass(frozen=True, kw_only=True)
class Linear(Schedule, name="linear"):
    r"""Divides all frequencies by one factor s (position interpolation):
    :math:`\omega_j = \mathrm{base}^{-2j/d}/s`.

    References:
        Extending Context Window of Large Language Models via Positional Interpolation (Chen et al., 2023).
    """

    base: float = 10000.0
    factor: float = 4.0  # New context length over the trained one.

    def __post_init__(self) -> None:
        require(self.base > 0, self, "base", "positive")
        require(self.factor > 0, self, "factor", "positive")

    def frequencies(self, width: int) -> Float[Tensor, " m"]:
        return geometric(self.base, width) / self.factor
