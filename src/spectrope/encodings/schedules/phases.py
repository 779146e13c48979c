"""Controls: rotations like RoPE's that carry no information, or no ordered information, about the lag."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from spectrope.core import require, require_least, torch_stream
from spectrope.encodings.base import Tag
from spectrope.encodings.parts import Constant, lookup
from spectrope.encodings.schedules.base import ROTATION, Schedule, geometric


@dataclass(frozen=True, kw_only=True)
class ShuffledPhases(Schedule, name="shuffled"):
    r"""Gives each position the angles of another one, by a fixed permutation:
    :math:`\varphi_j(p) = \pi(p)\,\mathrm{base}^{-2j/d}`.

    A control: the same rotations as RoPE's, in an order that a seed permutes, so that equal lags no longer
    turn alike. Positions below max_length only.
    """

    laws: ClassVar[frozenset[Tag]] = ROTATION - {Tag.SHIFT_INVARIANT}

    base: float = 10000.0
    max_length: int = 128  # Positions that are permuted.
    seed: int = 0

    def __post_init__(self) -> None:
        require(self.base > 0, self, "base", "positive")
        require_least(self, 1, "max_length")

    def build(self, width: int) -> nn.Module:
        stream = torch_stream(self.seed, "shuffled phases")
        order = torch.randperm(self.max_length, generator=stream)
        return TabledAngles(order[:, None] * geometric(self.base, width))


@dataclass(frozen=True, kw_only=True)
class FrozenPhases(Schedule, name="frozen"):
    r"""A random angle per position and pair, drawn once: :math:`\varphi_j(p) \sim U[0, 2\pi)`.

    A control: unit-modulus factors as RoPE's, without frequencies. Positions below max_length only.
    """

    laws: ClassVar[frozenset[Tag]] = ROTATION - {Tag.SHIFT_INVARIANT}

    max_length: int = 128  # Positions that have angles.
    seed: int = 0

    def __post_init__(self) -> None:
        require_least(self, 1, "max_length")

    def build(self, width: int) -> nn.Module:
        stream = torch_stream(self.seed, "frozen phases")
        turns = torch.rand(self.max_length, width // 2, generator=stream, dtype=torch.float64)
        return TabledAngles(2 * math.pi * turns)


class TabledAngles(nn.Module):
    """Angles read from a table.

    Args:
        table: Radians of each position and pair, with shape (n, m).
    """

    def __init__(self, table: Float[Tensor, "n m"]) -> None:
        super().__init__()
        self.table = Constant(table)

    def forward(self, pos: Tensor) -> Float[Tensor, "b t m"]:
        """Angles of positions with shape (b or 1, t).

        Raises:
            UnsupportedError: If the table does not hold a position.
        """
        return lookup(self.table.value, pos, self)
