"""GRAPE, multiplicative: rotations in learned planes, as a one-parameter group."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from spectrope.core import require, require_least
from spectrope.encodings.base import Encoding, EncodingConfig, Scope, Side, Tag
from spectrope.encodings.parts import multiply_pairs
from spectrope.encodings.schedules.base import geometric


class GRAPE(Encoding, name="grape"):
    r"""Multiplies queries and keys by a power of one trained rotation per head:
    :math:`R_h(p) = \exp(p \sum_j \omega_{hj} L_{hj})`.

    :math:`L_{hj} = u v^\top - v u^\top` is the generator of the plane of two orthonormal vectors u and v;
    planes of one head are orthogonal, so that the generators commute. Planes are given by the columns of the
    exponential of a trained skew-symmetric matrix, and frequencies by exponentials of trained logarithms.
    They are initialised to coordinate pairs and RoPE's frequencies, so training starts from RoPE.

    References:
        Group Representational Position Encoding (Zhang et al., 2026), multiplicative, with commuting planes.
    """

    family = "rotary"
    scope = Scope.LAYER
    tags = frozenset({Tag.SHIFT_INVARIANT, Tag.CONTENT_FREE, Tag.ISOMETRIC, Tag.LEARNED})

    @dataclass(frozen=True, kw_only=True)
    class Config(EncodingConfig):
        """Sizes, and where training starts."""

        n_heads: int = 16
        head_dim: int = 16  # Width of queries and keys.
        base: float = 10000.0  # Of the frequencies at the start.

        def __post_init__(self) -> None:
            even = self.head_dim > 0 and self.head_dim % 2 == 0
            require(even, self, "head_dim", "even and positive", "GRAPE acts on planes.")
            require_least(self, 1, "n_heads")
            require(self.base > 0, self, "base", "positive")

    def setup(self, config: "GRAPE.Config") -> None:
        logarithms = geometric(config.base, config.head_dim).log().to(torch.get_default_dtype())
        self.logarithms = nn.Parameter(logarithms.expand(config.n_heads, 1, -1).clone())
        self.skew = nn.Parameter(torch.zeros(config.n_heads, config.head_dim, config.head_dim))

    def planes(self) -> Float[Tensor, "h d d"]:
        """Orthonormal columns; each consecutive pair of columns spans one plane of the head."""
        dtype = torch.promote_types(self.skew.dtype, torch.float32)
        return torch.linalg.matrix_exp((self.skew - self.skew.mT).to(dtype))

    def rotate(self, x: Float[Tensor, "b h t d"], pos: Tensor, side: Side) -> Float[Tensor, "b h t d"]:
        planes = self.planes()
        angles = torch.atleast_2d(pos).double()[:, None, :, None] * self.logarithms.double().exp()
        planes = planes.to(torch.promote_types(x.dtype, planes.dtype))
        inside = x.to(planes.dtype) @ planes
        turned = multiply_pairs(inside, torch.polar(torch.ones_like(angles), angles), "adjacent")
        return (turned @ planes.mT).to(x.dtype)
