"""ComplexFormer: heads that adapt the angle between contents and the rotation by position."""

from dataclasses import dataclass, field
from typing import Annotated

import torch
from jaxtyping import Float
from torch import Tensor, nn

from spectrope.core import OneOf, require, require_least
from spectrope.encodings.base import Encoding, EncodingConfig, Scope, Side, Tag
from spectrope.encodings.parts import Pairing, complex_pairs
from spectrope.encodings.schedules.base import SCHEDULES, Schedule
from spectrope.encodings.schedules.geometric import Geometric


class ComplexFormer(Encoding, name="complexformer"):
    r"""Scales the angles of contents and of the rotation in each coordinate pair by trained factors per head:
    :math:`\sum_j |q_j||k_j|\cos(a_h(\arg q_j - \arg k_j) + s_h (m-n)\omega_j)`.

    With pairs of coordinates as complex numbers, a rotation by RoPE adds :math:`(m-n)\omega_j` to the
    difference between the arguments of a query's and a key's pair, each within :math:`(-\pi, \pi]`. Here a
    head scales both arguments by :math:`a_h` and the rotation by :math:`s_h`, both trained from 1, where it
    is RoPE.

    References:
        ComplexFormer (Shao et al., 2025), from its abstract, which adapts the phase exp(i(Adapt(AS) + Δ(P)))
        per head: that both are one factor per head is ours, and the paper has been withdrawn.
    """

    family = "rotary"
    scope = Scope.LAYER

    @dataclass(frozen=True, kw_only=True)
    class Config(EncodingConfig):
        """Sizes, frequencies and layout."""

        n_heads: int = 16
        head_dim: int = 16  # Width of queries and keys.
        schedule: Annotated[Schedule, OneOf(SCHEDULES)] = field(default_factory=Geometric)
        pairs: Pairing = "adjacent"

        def __post_init__(self) -> None:
            even = self.head_dim > 0 and self.head_dim % 2 == 0
            require(even, self, "head_dim", "even and positive", "It acts on pairs of coordinates.")
            require_least(self, 1, "n_heads")

    def setup(self, config: "ComplexFormer.Config") -> None:
        schedule = config.schedule
        self.pairing: Pairing = config.pairs
        self.tags = (schedule.tags - {Tag.CONTENT_FREE}) | {Tag.LEARNED}
        self.prefix_consistent, self.gain = schedule.prefix_consistent, schedule.gain
        self.angles = schedule.build(config.head_dim)
        self.content = nn.Parameter(torch.ones(config.n_heads, 1, 1))
        self.position = nn.Parameter(torch.ones(config.n_heads, 1, 1))

    @property
    def pairwise(self) -> bool:
        return True

    def rotate(self, x: Float[Tensor, "b h t d"], pos: Tensor, side: Side) -> Float[Tensor, "b h t d"]:
        z = complex_pairs(x.to(torch.promote_types(x.dtype, torch.float32)), self.pairing)
        turn = self.angles(torch.atleast_2d(pos))[:, None] * self.position.double()
        angle = z.angle() * self.content.to(z.real.dtype) + turn
        turned = torch.polar(z.abs().double() * self.gain, angle.double())
        parts = torch.view_as_real(turned)
        joined = parts.flatten(-2) if self.pairing == "adjacent" else parts.mT.flatten(-2)
        return joined.to(x.dtype)
