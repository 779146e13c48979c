"""A random increasing subset of a longer range."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from spectrope.core import UnsupportedError, require_least, torch_stream
from spectrope.encodings.positions.base import Positions


@dataclass(frozen=True, kw_only=True)
class RandomSubset(Positions, name="random_subset"):
    r"""Positions that are a uniformly random subset of 0, ..., L - 1, in order:
    :math:`0 \le p_0 < p_1 < \dots < p_{n-1} < L`.

    Training draws one subset per sequence, so all positions up to L occur although sequences are shorter.
    Evaluation uses one subset per length, drawn from the rule's own seed.

    References:
        Randomized Positional Encodings Boost Length Generalization of Transformers (Ruoss et al., 2023).
    """

    prefix_consistent: ClassVar[bool] = False

    longest: int = 2048  # Positions L to choose from.
    seed: int = 0  # Names the subsets of evaluation.

    def __post_init__(self) -> None:
        require_least(self, 1, "longest")

    def __call__(self, batch: int, length: int, device: torch.device, seed: int | None = None) -> Tensor:
        if length > self.longest:
            raise UnsupportedError(f"RandomSubset has {self.longest} positions and was asked for {length}.")
        training = seed is not None
        stream = torch_stream(seed if training else self.seed, "positions", *(() if training else (length,)))
        draws = torch.rand(batch if training else 1, self.longest, generator=stream)
        return draws.topk(length, sorted=False).indices.sort().values.to(device)
