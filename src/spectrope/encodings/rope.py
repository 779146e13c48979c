"""Rotary position embedding."""

from dataclasses import dataclass, field
from typing import Annotated

import torch
from jaxtyping import Float
from torch import Tensor

from spectrope.core import OneOf, require
from spectrope.encodings.base import Encoding, EncodingConfig, Side
from spectrope.encodings.parts import Pairing, multiply_pairs
from spectrope.encodings.schedules.base import SCHEDULES, Schedule
from spectrope.encodings.schedules.geometric import Geometric


class RoPE(Encoding, name="rope"):
    r"""Rotates coordinate pairs of queries and keys by angles proportional to position:
    :math:`R(x, p)_j = x_j e^{i p\omega_j}`.

    With :math:`x_j` the j-th pair as a complex number, logits depend on positions only through the lag:
    :math:`L_{mn} = \mathrm{Re} \sum_j q_j \bar k_j e^{i(m-n)\omega_j}/\sqrt d`.

    References:
        RoFormer: Enhanced Transformer with Rotary Position Embedding (Su et al., 2021).
    """

    family = "rotary"

    @dataclass(frozen=True, kw_only=True)
    class Config(EncodingConfig):
        """Frequencies and layout of the rotation."""

        head_dim: int = 16  # Width of queries and keys.
        schedule: Annotated[Schedule, OneOf(SCHEDULES)] = field(default_factory=Geometric)
        pairs: Pairing = "adjacent"  # The paper's and GPT-J's; Llama checkpoints use "halves".

        def __post_init__(self) -> None:
            even = self.head_dim > 0 and self.head_dim % 2 == 0
            require(even, self, "head_dim", "even and positive", "Rotary acts on pairs of coordinates.")

    def setup(self, config: "RoPE.Config") -> None:
        self.pairing: Pairing = config.pairs
        self.tags, self.scope, self.gain = config.schedule.tags, config.schedule.scope, config.schedule.gain
        self.prefix_consistent = config.schedule.prefix_consistent
        self.angles = config.schedule.build(config.head_dim)

    def rotate(self, x: Float[Tensor, "b h t d"], pos: Tensor, side: Side) -> Float[Tensor, "b h t d"]:
        angles = self.angles(torch.atleast_2d(pos))[:, None]
        return multiply_pairs(x, torch.polar(torch.full_like(angles, self.gain), angles), self.pairing)
