"""Rotary position embedding with an error of one public implementation."""

from dataclasses import dataclass, field
from typing import Annotated

import torch
from jaxtyping import Float
from torch import Tensor

from spectrope.core import OneOf, require
from spectrope.encodings.base import Encoding, EncodingConfig, Side, Tag
from spectrope.encodings.parts import Pairing, multiply_pairs
from spectrope.encodings.schedules.base import SCHEDULES, Schedule
from spectrope.encodings.schedules.geometric import Geometric


class MisreadRoPE(Encoding, name="misread_rope"):
    r"""RoPE whose table of sines and cosines is read in the wrong order, as in one public implementation:
    :math:`R(x, p)_j = x_j (e_{2j+1} + \mathrm{i}\,e_{2j})`.

    The table of position p holds the sines of all angles :math:`p\,\omega_j`, then their cosines: :math:`e =
    [\sin p\omega;\, \cos p\omega]`. Its even entries are taken for sines and its odd ones for cosines, so the
    first half of the pairs uses sines for both, and the other half cosines for both. This is not a rotation,
    but every pair is still multiplied by a complex number that depends only on the position (R11).

    References:
        The public code of Unpacking Positional Encoding in Transformers (Gu et al., 2025), latent attention.
    """

    family = "rotary"
    tags = frozenset({Tag.CONTENT_FREE})

    @dataclass(frozen=True, kw_only=True)
    class Config(EncodingConfig):
        """Frequencies and layout of what should be a rotation."""

        head_dim: int = 16  # Width of queries and keys.
        schedule: Annotated[Schedule, OneOf(SCHEDULES)] = field(default_factory=Geometric)
        pairs: Pairing = "adjacent"

        def __post_init__(self) -> None:
            even = self.head_dim > 0 and self.head_dim % 2 == 0
            require(even, self, "head_dim", "even and positive", "MisreadRoPE acts on pairs of coordinates.")

    def setup(self, config: "MisreadRoPE.Config") -> None:
        self.pairing: Pairing = config.pairs
        learned = config.schedule.tags & {Tag.LEARNED}
        self.tags, self.scope, self.gain = (
            type(self).tags | learned,
            config.schedule.scope,
            config.schedule.gain,
        )
        self.prefix_consistent = config.schedule.prefix_consistent
        self.angles = config.schedule.build(config.head_dim)

    def rotate(self, x: Float[Tensor, "b h t d"], pos: Tensor, side: Side) -> Float[Tensor, "b h t d"]:
        angles = self.angles(torch.atleast_2d(pos))[:, None]
        table = self.gain * torch.cat([angles.sin(), angles.cos()], -1)
        return multiply_pairs(x, torch.complex(table[..., 1::2], table[..., ::2]), self.pairing)
