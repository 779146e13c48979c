"""What a frequency schedule is, and the module that turns positions into angles."""

from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from spectrope.core.config import Configured
from spectrope.core.registry import Registry
from spectrope.encodings.base import Tag
from spectrope.encodings.constant import Constant

SCHEDULES: Registry["Schedule"] = Registry("frequency schedule", "spectrope.encodings.schedules")


class Schedule(Configured):
    """Base of the rules that set the frequency of each coordinate pair; each is a frozen dataclass.

    Attributes:
        tags: Laws that a rotation by these frequencies keeps.
    """

    kind: ClassVar[str]
    tags: ClassVar[frozenset[Tag]] = frozenset({Tag.SHIFT_INVARIANT, Tag.CONTENT_FREE, Tag.ISOMETRIC})

    def __init_subclass__(cls, *, name: str | None = None, **kwargs: Any) -> None:
        """Register the class under `name`; without one it is a base for others."""
        super().__init_subclass__(**kwargs)
        if name is not None:
            SCHEDULES.register(name, cls)

    def frequencies(self, width: int) -> Float[Tensor, " m"]:
        """Radians per position of the m = width/2 coordinate pairs, in float64."""
        raise NotImplementedError

    def build(self, width: int) -> nn.Module:
        """A module from positions (b or 1, t) to angles (b or 1, t, m) in radians."""
        return Angles(self.frequencies(width))


class Angles(nn.Module):
    r"""Angles :math:`p\,\omega_j` in float64, exact to 1e-16 of a turn at any position a model will see.

    Args:
        frequencies: Radians per position, with shape (m,).
    """

    def __init__(self, frequencies: Float[Tensor, " m"]) -> None:
        super().__init__()
        self.frequencies = Constant(frequencies.to(torch.float64))

    def forward(self, pos: Tensor) -> Float[Tensor, "b t m"]:
        """Angles of positions with shape (b or 1, t)."""
        return pos[..., None] * self.frequencies.value
