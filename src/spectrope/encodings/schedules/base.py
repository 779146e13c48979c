"""Base class of frequency schedules, and the module that converts positions to angles."""

from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from spectrope.core import Registered, Registry, UnsupportedError
from spectrope.encodings.base import Scope, Sized, Tag
from spectrope.encodings.parts import Constant

SCHEDULES: Registry[type["Schedule"]] = Registry("frequency schedule", "spectrope.encodings.schedules")
ROTATION = frozenset({Tag.SHIFT_INVARIANT, Tag.CONTENT_FREE, Tag.ISOMETRIC})


class Schedule(Registered, Sized):
    """Base of the rules that set the frequency of each coordinate pair; each is a frozen dataclass."""

    registry = SCHEDULES
    kind: ClassVar[str]
    laws: ClassVar[frozenset[Tag]] = ROTATION
    scope: ClassVar[Scope] = Scope.MODEL
    prefix_consistent: ClassVar[bool] = True  # No token's angles depend on how many tokens follow.

    @property
    def gain(self) -> float:
        """Factor on both rotated queries and rotated keys, with which some schedules sharpen attention."""
        return 1.0

    @property
    def tags(self) -> frozenset[Tag]:
        """Laws that a rotation by this schedule keeps."""
        return self.laws if self.gain == 1 else self.laws - {Tag.ISOMETRIC}

    def frequencies(self, width: int) -> Float[Tensor, " m"]:
        """Initial frequencies of the m = width/2 coordinate pairs, in radians per position, in float64.

        Raises:
            UnsupportedError: If angles do not grow in proportion to position.
        """
        raise UnsupportedError(f"{type(self).__name__} turns no pair at a steady frequency.")

    def build(self, width: int) -> nn.Module:
        """A module from positions (b or 1, t) to angles (b or 1, t, m) in radians."""
        return Angles(self.frequencies(width))


class Angles(nn.Module):
    r"""Angles :math:`p\,\omega_j` in float64, exact to 1e-9 radians up to position 10 million.

    Args:
        frequencies: Radians per position, with shape (m,).
    """

    def __init__(self, frequencies: Float[Tensor, " m"]) -> None:
        super().__init__()
        self.frequencies = Constant(frequencies.to(torch.float64))

    def forward(self, pos: Tensor) -> Float[Tensor, "b t m"]:
        """Angles of positions with shape (b or 1, t)."""
        return pos[..., None] * self.frequencies.value


def geometric(base: float, width: int) -> Float[Tensor, " m"]:
    r"""Frequencies :math:`\mathrm{base}^{-2j/d}`, j = 0, ..., d/2 - 1, for vectors of width d, in float64."""
    return base ** -(torch.arange(0, width, 2, dtype=torch.float64) / width)
