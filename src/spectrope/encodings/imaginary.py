"""RoPE++: heads that use the imaginary part of the rotated product."""

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


class RoPEPlusPlus(Encoding, name="rope_pp"):
    r"""RoPE in which half of the heads use the imaginary part of the product:
    :math:`\mathrm{Im}\sum_j q_j \bar k_j e^{i(m-n)\omega_j}/\sqrt d`.

    Head h of the first half is RoPE, which takes the real part of that sum. Head h of the second half takes
    the imaginary part of the same queries and keys, those of its counterpart, by turning queries back a
    quarter turn. Its own query and key projections are not used, so the two heads share theirs, as in the
    paper; separate projections could absorb the quarter turn, and the head would be equivalent to RoPE.
    Values are each head's own here; in the paper they are shared as well.

    References:
        Beyond Real: Imaginary Extension of Rotary Position Embeddings for Long-Context LLMs (Liu et al.,
        2025).
    """

    family = "rotary"

    @dataclass(frozen=True, kw_only=True)
    class Config(EncodingConfig):
        """Sizes, frequencies and layout."""

        n_heads: int = 16
        head_dim: int = 16  # Width of queries and keys.
        schedule: Annotated[Schedule, OneOf(SCHEDULES)] = field(default_factory=Geometric)
        pairs: Pairing = "adjacent"

        def __post_init__(self) -> None:
            for name in ("n_heads", "head_dim"):
                size = getattr(self, name)
                require(size > 0 and size % 2 == 0, self, name, "even and positive")

    def setup(self, config: "RoPEPlusPlus.Config") -> None:
        schedule = config.schedule
        self.pairing: Pairing = config.pairs
        self.n_real = config.n_heads // 2
        self.tags, self.scope, self.gain = schedule.tags - {Tag.ISOMETRIC}, schedule.scope, schedule.gain
        self.prefix_consistent = schedule.prefix_consistent
        self.angles = schedule.build(config.head_dim)

    def rotate(self, x: Float[Tensor, "b h t d"], pos: Tensor, side: Side) -> Float[Tensor, "b h t d"]:
        angles = self.angles(torch.atleast_2d(pos))[:, None]
        turn = torch.polar(torch.full_like(angles, self.gain), angles)
        real = multiply_pairs(x[:, : self.n_real], turn, self.pairing)
        other = multiply_pairs(x[:, : self.n_real], -1j * turn, self.pairing) if side == "query" else real
        return torch.cat([real, other], 1)
