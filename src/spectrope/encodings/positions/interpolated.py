"""Positions compressed into the trained range."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from spectrope.core import require_least
from spectrope.encodings.positions.base import Positions


@dataclass(frozen=True, kw_only=True)
class Interpolated(Positions, name="interpolated"):
    r"""Compresses positions of sequences longer than the trained length L into it:
    :math:`p_t = t \min(1, L/n)`.

    n is the length of the batch, padding included, so that a short sequence is compressed with the longer
    ones beside it. Unlike the `Linear` schedule, which divides RoPE's frequencies by one factor at all
    lengths, this rule works with any encoding that accepts fractional positions, and does not change batches
    within the trained length.

    References:
        Extending Context Window of Large Language Models via Positional Interpolation (Chen et al., 2023).
    """

    prefix_consistent: ClassVar[bool] = False

    trained_length: int = 128  # Longest sequence in training, in tokens.

    def __post_init__(self) -> None:
        require_least(self, 1, "trained_length")

    def __call__(self, batch: int, length: int, device: torch.device, seed: int | None = None) -> Tensor:
        pos = torch.arange(length, device=device)[None]
        return pos if length <= self.trained_length else pos * (self.trained_length / length)
