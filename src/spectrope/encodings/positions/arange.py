"""Tokens numbered by their index."""

from dataclasses import dataclass

import torch
from torch import Tensor

from spectrope.encodings.positions.base import Positions


@dataclass(frozen=True)
class Arange(Positions, name="arange"):
    r"""Numbers tokens consecutively from 0: :math:`p_t = t`."""

    def __call__(self, batch: int, length: int, device: torch.device, seed: int | None = None) -> Tensor:
        return torch.arange(length, device=device)[None]
