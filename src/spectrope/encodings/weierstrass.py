"""Weierstrass elliptic positions in the plane."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Complex, Float
from torch import Tensor, nn

from spectrope.core import require_least
from spectrope.encodings.base import Encoding, EncodingConfig, Tag
from spectrope.encodings.positions.axes import coordinates

TERMS = 24  # Of the series, whose terms fall by exp(-2 pi) or faster.


def weierstrass(z: Complex[Tensor, "*n"]) -> tuple[Tensor, Tensor]:
    r"""The Weierstrass function of the square lattice and its derivative, with periods 1 and i.

    .. math:: \wp(z) = \frac{\pi^2}{\sin^2 \pi z} - \frac{\pi^2}{3}
        + 8\pi^2 \sum_{n \ge 1} \frac{n q^n}{1 - q^n} (1 - \cos 2\pi n z), \quad q = e^{-2\pi}

    The series converges where :math:`|\mathrm{Im}\,z| < 1`; arguments are reduced to
    the cell around 0 first.
    """
    z = torch.complex(z.real - z.real.round(), z.imag - z.imag.round())
    n = torch.arange(1, TERMS + 1, dtype=torch.float64, device=z.device)
    weight = n * (-2 * math.pi * n).exp() / (1 - (-2 * math.pi * n).exp())
    constant = math.pi**2 / 3 * (24 * weight.sum() - 1)  # -pi^2 E_2 / 3
    angle = math.pi * z
    phases = 2 * angle[..., None] * n
    value = (math.pi / angle.sin()) ** 2 + constant - 8 * math.pi**2 * (weight * phases.cos()).sum(-1)
    slope = -2 * math.pi**3 * angle.cos() / angle.sin() ** 3
    slope = slope + 16 * math.pi**3 * (n * weight * phases.sin()).sum(-1)
    return value, slope


class Weierstrass(Encoding, name="weierstrass"):
    r"""Adds a linear map of an elliptic function of the two-dimensional position to the input:
    :math:`x_p + W f(\wp(z_p), \wp'(z_p))`.

    :math:`z = ((u + \tfrac12) + i(v + \tfrac12))/(2S)` for rows u and columns v, so that an image of S rows
    lies in a quarter of the cell and no position coincides with a pole. :math:`\wp` belongs to the square
    lattice with periods 1 and i. Real and imaginary parts of it and of its derivative are the four features;
    f is the inverse hyperbolic sine, which limits their growth near the pole. W is trained. A plain position
    p stands for the place (p, p).

    References:
        Weierstrass Positional Encoding for Vision Transformers (Xin et al., 2026): the four features of
        normalised coordinates; lattice, placement and f are ours.
    """

    family = "absolute"
    tags = frozenset({Tag.CONTENT_FREE, Tag.LEARNED})
    axes = 2

    @dataclass(frozen=True, kw_only=True)
    class Config(EncodingConfig):
        """Sizes, and how large the plane is."""

        d_model: int = 256  # Width of the input.
        side: int = 32  # Rows and columns S of a picture.
        std: float = 0.02  # Standard deviation of the initial map.

        def __post_init__(self) -> None:
            require_least(self, 1, "d_model", "side")
            require_least(self, 0, "std")

    def setup(self, config: "Weierstrass.Config") -> None:
        self.side = config.side
        self.map = nn.Parameter(torch.randn(4, config.d_model) * config.std)

    def features(self, pos: Tensor) -> Float[Tensor, "b t 4"]:
        """The four features of each position."""
        place = (coordinates(pos, 2).double() + 0.5) / (2 * self.side)
        value, slope = weierstrass(torch.complex(place[..., 0], place[..., 1]))
        parts = torch.stack([value.real, value.imag, slope.real, slope.imag], -1)
        return parts.asinh()

    def embed(self, x: Float[Tensor, "b t c"], pos: Tensor) -> Float[Tensor, "b t c"]:
        return x + self.features(pos).to(x.dtype) @ self.map.to(x.dtype)
