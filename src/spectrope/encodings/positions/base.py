"""Base class of position rules, which assign positions to the tokens of a batch."""

from typing import ClassVar

import torch
from torch import Tensor

from spectrope.core import Configured, Registered, Registry

POSITIONS: Registry[type["Positions"]] = Registry("positions", "spectrope.encodings.positions")


class Positions(Registered, Configured):
    """Base of the rules that number tokens; each is a frozen dataclass that serialises by its name."""

    registry = POSITIONS
    kind: ClassVar[str]
    prefix_consistent: ClassVar[bool] = True  # In evaluation no position depends on how many tokens follow.

    def __call__(self, batch: int, length: int, device: torch.device, seed: int | None = None) -> Tensor:
        """Positions of `length` tokens in each of `batch` sequences, with shape (1 or batch, length).

        Args:
            batch: Number of sequences.
            length: Number of tokens.
            device: Where the positions are wanted.
            seed: Seed of this training step, for random rules; None in evaluation, where equal arguments give
                equal positions, the same for every sequence.
        """
        raise NotImplementedError
