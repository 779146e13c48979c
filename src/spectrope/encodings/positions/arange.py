"""Tokens numbered by their index."""

from dataclasses import dataclass

import torch
from torch import Tensor

from spectrope.encodings.positions.base import Positions


@dataclass(frozen=True)
class Arange(Positions, name="arange"):
    r"""Positions 0, 1, 2, ...: :math:`p_t = t`, from 0."""

    def __call__(self, batch: int, length: int, device: torch.device, seed: int | None = None) -> Tensor:
        return torch.arange(length, device=device)[None]
