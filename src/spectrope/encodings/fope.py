"""Fourier position embedding."""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from spectrope.core import require, require_least, torch_stream
from spectrope.encodings.base import Encoding, EncodingConfig, Scope, Side, Tag
from spectrope.encodings.parts import Constant, Pairing, multiply_pairs
from spectrope.encodings.schedules.base import geometric


class FoPE(Encoding, name="fope"):
    r"""RoPE in which each coordinate pair mixes several frequencies:
    :math:`x_j \sum_k a_{jk} \cos p\omega_k + i a'_{jk} \sin p\omega_k`.

    Pairs that complete less than one turn in `max_length` are not rotated, and their frequencies are not
    mixed. Coefficients start at the identity plus Xavier noise, per head, separately for sines and cosines.
    (The authors' code multiplies the unrotated pairs by 1 + i, whereas the paper's zero frequency gives 1;
    and it mixes frequencies into at most half of the pairs.)

    References:
        Fourier Position Embedding: Enhancing Attention's Periodic Extension for Length Generalization (Hua
        et al., 2024).
    """

    family = "rotary"
    tags = frozenset({Tag.CONTENT_FREE})
    mixing: Tensor

    @dataclass(frozen=True, kw_only=True)
    class Config(EncodingConfig):
        """Frequencies and their mixture."""

        n_heads: int = 16
        head_dim: int = 16  # Width of queries and keys.
        max_length: int = 128  # Longest sequence in training, in positions.
        base: float = 10000.0
        gain: float = 0.3  # Size of the Xavier noise.
        seed: int = 0  # Names the noise.
        learned: bool = False  # Whether training moves the coefficients; each layer then has its own.
        pairs: Pairing = "adjacent"

        def __post_init__(self) -> None:
            even = self.head_dim > 0 and self.head_dim % 2 == 0
            require(even, self, "head_dim", "even and positive", "FoPE acts on pairs of coordinates.")
            require_least(self, 1, "n_heads")
            require(self.max_length >= 7, self, "max_length", "at least 7, one turn of the first pair")
            require(self.base > 1, self, "base", "above 1")
            require_least(self, 0, "gain")

    def setup(self, config: "FoPE.Config") -> None:
        self.pairing: Pairing = config.pairs
        frequencies = geometric(config.base, config.head_dim)
        trained = frequencies[frequencies * config.max_length >= 2 * math.pi]
        self.still = len(frequencies) - len(trained)
        self.frequencies = Constant(trained)
        mixing = mixtures(config.n_heads, len(trained), config.gain, config.seed)
        if config.learned:
            self.mixing = nn.Parameter(mixing)
            self.tags, self.scope = self.tags | {Tag.LEARNED}, Scope.LAYER
        else:
            self.register_buffer("mixing", mixing)

    def rotate(self, x: Float[Tensor, "b h t d"], pos: Tensor, side: Side) -> Float[Tensor, "b h t d"]:
        angles = (torch.atleast_2d(pos)[..., None] * self.frequencies.value)[:, None]
        of_cosines, of_sines = self.mixing.double()
        real = F.pad(angles.cos() @ of_cosines, (0, self.still), value=1.0)
        imaginary = F.pad(angles.sin() @ of_sines, (0, self.still))
        return multiply_pairs(x, torch.complex(real, imaginary), self.pairing)


def mixtures(n_heads: int, n: int, gain: float, seed: int) -> Float[Tensor, "2 h n n"]:
    """The identity plus Xavier noise, for cosines and for sines of each head."""
    noise = torch.randn(2, n_heads, n, n, generator=torch_stream(seed, "fourier mixture"))
    # The authors draw all heads by one call of torch's xavier_normal_, whose fans are then n * n and h * n.
    std = gain * math.sqrt(2 / (n_heads * n + n * n))
    return torch.eye(n) + std * noise
