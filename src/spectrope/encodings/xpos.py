"""Rotation with exponential decay."""

from dataclasses import dataclass, field
from typing import Annotated

import torch
from jaxtyping import Float
from torch import Tensor

from spectrope.core import OneOf, require
from spectrope.encodings.base import Encoding, EncodingConfig, Side, Tag
from spectrope.encodings.parts import Constant, Pairing, multiply_pairs
from spectrope.encodings.schedules.base import SCHEDULES, Schedule
from spectrope.encodings.schedules.geometric import Geometric


class XPos(Encoding, name="xpos"):
    r"""RoPE whose products decay exponentially with the lag:
    :math:`R(q, p)_j = q_j\,\zeta_j^{p/B} e^{i p\omega_j}`.

    Keys are scaled by the inverse power, so logits depend only on the lag. The rates are :math:`\zeta_j =
    (2j/d + \gamma)/(1 + \gamma)`. The powers overflow float32 at about 35,000 positions from the origin.

    References:
        A Length-Extrapolatable Transformer (Sun et al., 2023); constants of the authors' torchscale.
    """

    family = "rotary"

    @dataclass(frozen=True, kw_only=True)
    class Config(EncodingConfig):
        """Frequencies, decay and layout of the rotation."""

        head_dim: int = 16  # Width of queries and keys.
        schedule: Annotated[Schedule, OneOf(SCHEDULES)] = field(default_factory=Geometric)
        gamma: float = 0.4  # The larger, the weaker the decay.
        scale_base: float = 512.0  # Positions B after which a pair has decayed by its whole factor.
        pairs: Pairing = "adjacent"

        def __post_init__(self) -> None:
            even = self.head_dim > 0 and self.head_dim % 2 == 0
            require(even, self, "head_dim", "even and positive", "XPos acts on pairs of coordinates.")
            require(self.gamma > 0, self, "gamma", "positive")
            require(self.scale_base > 0, self, "scale_base", "positive")

    def setup(self, config: "XPos.Config") -> None:
        self.pairing: Pairing = config.pairs
        schedule = config.schedule
        self.tags, self.scope, self.gain = schedule.tags - {Tag.ISOMETRIC}, schedule.scope, schedule.gain
        self.prefix_consistent = schedule.prefix_consistent
        self.angles = schedule.build(config.head_dim)
        shares = torch.arange(0, config.head_dim, 2, dtype=torch.float64) / config.head_dim
        self.rates = Constant(((shares + config.gamma) / (1 + config.gamma)).log() / config.scale_base)

    def rotate(self, x: Float[Tensor, "b h t d"], pos: Tensor, side: Side) -> Float[Tensor, "b h t d"]:
        pos = torch.atleast_2d(pos)
        sign = 1 if side == "query" else -1
        growth = (sign * pos[..., None] * self.rates.value).exp() * self.gain
        return multiply_pairs(x, torch.polar(growth, self.angles(pos))[:, None], self.pairing)
