"""Randomly shifted positions."""

from dataclasses import dataclass

import torch
from torch import Tensor

from spectrope.core import require_least, torch_stream
from spectrope.encodings.positions.base import Positions


@dataclass(frozen=True, kw_only=True)
class Shifted(Positions, name="shifted"):
    r"""Adds a random offset to the positions of each training sequence:
    :math:`p_t = t + k`, k uniform on 0, ..., K.

    Evaluation does not shift. Absolute encodings thereby learn shift invariance, which relative encodings
    have by construction.

    References:
        SHAPE: Shifted Absolute Position Embedding for Transformers (Kiyono et al., 2021).
    """

    max_shift: int = 100  # Largest shift K, in positions.

    def __post_init__(self) -> None:
        require_least(self, 0, "max_shift")

    def __call__(self, batch: int, length: int, device: torch.device, seed: int | None = None) -> Tensor:
        pos = torch.arange(length, device=device)[None]
        if seed is None:
            return pos
        stream = torch_stream(seed, "positions")
        return pos + torch.randint(self.max_shift + 1, (batch, 1), generator=stream).to(device)
