"""Directional rotary position embedding."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from spectrope.core import require
from spectrope.encodings.base import Encoding, EncodingConfig, Side
from spectrope.encodings.parts import Pairing, multiply_pairs


class DRoPE(Encoding, name="drope"):
    r"""Rotates all coordinate pairs by one angle, the heading of an agent:
    :math:`R(x, p)_j = x_j e^{i\omega p}`.

    RoPE's frequencies differ, so headings that differ by :math:`2\pi` are different positions. With one
    frequency for all pairs, the "uniform identity scalar", logits depend on the difference of headings modulo
    :math:`2\pi/\omega`: :math:`L_{mn} = \mathrm{Re}(e^{i\omega(m-n)} \sum_j q_j \bar k_j)/\sqrt d`.

    If `omega` is 1, positions are headings in radians, and the tokens of a sequence lie on a circle. Combined
    with `rope` in a `PerHead`, this is the head-by-head form of the paper.

    References:
        DRoPE: Directional Rotary Position Embedding for Efficient Agent Interaction Modeling (Zhao et al.,
        2025).
    """

    family = "rotary"

    @dataclass(frozen=True, kw_only=True)
    class Config(EncodingConfig):
        """The one frequency and the layout of the rotation."""

        head_dim: int = 16  # Width of queries and keys.
        omega: float = 1.0  # Radians per unit of position.
        pairs: Pairing = "adjacent"

        def __post_init__(self) -> None:
            even = self.head_dim > 0 and self.head_dim % 2 == 0
            require(even, self, "head_dim", "even and positive", "DRoPE acts on pairs of coordinates.")
            require(self.omega > 0, self, "omega", "positive")

    def setup(self, config: "DRoPE.Config") -> None:
        self.pairing: Pairing = config.pairs
        self.omega = config.omega

    def rotate(self, x: Float[Tensor, "b h t d"], pos: Tensor, side: Side) -> Float[Tensor, "b h t d"]:
        angles = (torch.atleast_2d(pos).double() * self.omega)[:, None, :, None]
        angles = angles.expand(*angles.shape[:-1], x.shape[-1] // 2)
        return multiply_pairs(x, torch.polar(torch.ones_like(angles), angles), self.pairing)
