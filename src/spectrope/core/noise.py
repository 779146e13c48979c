"""Dropout masks that are cheap to draw and depend only on a seed."""

import math

import numpy as np
import torch
from torch import Tensor


class Noise:
    """Independent Bernoulli masks for the dropout sites of one forward pass.

    On a CPU, sixteen random bits per element from SFC64 replace torch's Mersenne twister, which costs about
    eight times as much; the probability is rounded to a multiple of 2**-16, neither 0 nor 1, and masks are
    scaled by the rounded one, so that dropout stays unbiased.

    Args:
        p: Probability that an element is dropped, in (0, 1).
        seed: Seed of the whole sequence of masks; a resumed run draws the same masks.
        device: Device of the masks.
    """

    def __init__(self, p: float, seed: int, device: torch.device) -> None:
        self.device = device
        self._dropped = min(max(round(p * 2**16), 1), 2**16 - 1)
        self.scale = 1 / (1 - self._dropped / 2**16)
        if device.type == "cpu":
            self._bits = np.random.SFC64(seed)
        else:
            self._generator = torch.Generator(device).manual_seed(seed)

    @property
    def last_dropped(self) -> int:
        """The largest of the words that drop an element."""
        return self._dropped - 2**15 - 1

    def words(self, shape: torch.Size) -> Tensor:
        """Sixteen random bits for each element, as a signed number."""
        if self.device.type == "cpu":
            n = math.prod(shape)
            words = self._bits.random_raw(-(-n // 4)).view(np.int16)
            return torch.from_numpy(words)[:n].view(shape)
        words = torch.empty(shape, dtype=torch.int16, device=self.device)
        return words.random_(-(2**15), 2**15, generator=self._generator)

    def keep(self, shape: torch.Size, dtype: torch.dtype) -> Tensor:
        """Ones where an element is kept and zeros where it is dropped."""
        last = self.last_dropped
        return self.words(shape).clamp_(last, last + 1).sub_(last).to(dtype)

    def drop(self, x: Tensor) -> Tensor:
        """Inverted dropout: elements of x survive with probability 1 - p and are divided by it."""
        return x * self.keep(x.shape, x.dtype).mul_(self.scale)


def maybe_drop(x: Tensor, noise: Noise | None) -> Tensor:
    """Dropout while training, the identity where there is no noise."""
    return x if noise is None else noise.drop(x)
