"""Lossless absolute positions: the discrete Fourier transform of the position."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from spectrope.core import require_least
from spectrope.encodings.base import Encoding, EncodingConfig, Tag
from spectrope.encodings.parts import Constant


class Faithful(Encoding, name="faithful"):
    r"""Adds the Fourier coefficients of the position to the input:
    :math:`x_p + \sqrt{2/S}(\cos p\omega_k, \sin p\omega_k)_k`.

    Frequencies :math:`\omega_k = 2\pi k/S` are those of sequences of S positions. The coefficients are those
    of the indicator function of the position, in the real orthonormal Fourier basis, in which the constant
    and, for even S, the alternating function have weight :math:`\sqrt{1/S}`. They are added to the first S
    coordinates, so the position can be recovered exactly; positions are taken modulo S. If the model is
    narrower than S, this is impossible; as many equally spaced frequencies are used as fit, and what is added
    has a norm below `gain`, about :math:`\sqrt{c/S}` times it at width c.

    References:
        Improving Transformers using Faithful Positional Encoding (Idé et al., 2024); the order of coordinates
        and the narrow case are ours.
    """

    family = "absolute"
    tags = frozenset({Tag.CONTENT_FREE})

    @dataclass(frozen=True, kw_only=True)
    class Config(EncodingConfig):
        """Sizes of the transform."""

        d_model: int = 256  # Width of the input.
        max_length: int = 128  # Positions S that are told apart.
        gain: float = 1.0  # Norm of what is added, where S coordinates are there.

        def __post_init__(self) -> None:
            require_least(self, 1, "d_model", "max_length")

    def setup(self, config: "Faithful.Config") -> None:
        frequencies, phases, weights = fourier_basis(config.max_length, config.d_model)
        self.frequencies, self.phases = Constant(frequencies), Constant(phases)
        self.weights = Constant(weights * config.gain)
        self.rest = config.d_model - len(frequencies)

    def embed(self, x: Float[Tensor, "b t c"], pos: Tensor) -> Float[Tensor, "b t c"]:
        angles = pos.double()[..., None] * self.frequencies.value - self.phases.value
        waves = angles.cos() * self.weights.value
        return x + torch.nn.functional.pad(waves, (0, self.rest)).to(x.dtype)


def fourier_basis(length: int, width: int) -> tuple[Tensor, Tensor, Tensor]:
    """Frequency, phase and weight of each cosine of the real orthonormal basis, as many as there is room
    for."""
    cosines = torch.arange(length // 2 + 1)
    sines = torch.arange(1, (length + 1) // 2)
    index = torch.cat([cosines, sines]).double()
    phases = torch.cat([torch.zeros(len(cosines)), torch.full((len(sines),), math.pi / 2)]).double()
    alone = (index == 0) | (2 * index == length)
    weights = torch.where(alone, 1.0, math.sqrt(2)).double() / math.sqrt(length)
    order = index.argsort(stable=True)  # Each cosine beside its sine.
    if width < length:
        order = order[torch.linspace(0, length - 1, width).round().long()]
    return (2 * math.pi / length * index)[order], phases[order], weights[order]
