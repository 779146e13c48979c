"""Head-wise adaptive rotation."""

from dataclasses import dataclass, field
from typing import Annotated

import torch
from jaxtyping import Float
from torch import Tensor, nn

from spectrope.core import OneOf, require, require_least
from spectrope.encodings.base import Encoding, EncodingConfig, Scope, Side, Tag
from spectrope.encodings.rope import RoPE
from spectrope.encodings.schedules.base import SCHEDULES, Schedule
from spectrope.encodings.schedules.geometric import Geometric


class HARoPE(Encoding, name="harope"):
    r"""RoPE after a trained linear map of each head's coordinates: :math:`R(A_h x, p)`.

    The map is :math:`A_h = U_h\,\mathrm{diag}(e^{s_h})\,V_h^\top`, the same for queries and keys. U and V are
    exponentials of skew-symmetric matrices; all starts at the identity, which is RoPE.

    References:
        Head-wise Adaptive Rotary Positional Encoding for Fine-Grained Image Generation (Li et al., 2025), in
        one dimension; the parametrisation of the orthogonal factors is ours.
    """

    family = "rotary"
    scope = Scope.LAYER

    @dataclass(frozen=True, kw_only=True)
    class Config(EncodingConfig):
        """Sizes of the maps, and the rotation after them."""

        n_heads: int = 16
        head_dim: int = 16  # Width of queries and keys.
        schedule: Annotated[Schedule, OneOf(SCHEDULES)] = field(default_factory=Geometric)

        def __post_init__(self) -> None:
            even = self.head_dim > 0 and self.head_dim % 2 == 0
            require(even, self, "head_dim", "even and positive", "HARoPE acts on pairs of coordinates.")
            require_least(self, 1, "n_heads")

    def setup(self, config: "HARoPE.Config") -> None:
        self.rope = RoPE(RoPE.Config(head_dim=config.head_dim, schedule=config.schedule))
        self.tags = (self.rope.tags - {Tag.ISOMETRIC}) | {Tag.LEARNED}
        self.prefix_consistent = self.rope.prefix_consistent
        self.generators = nn.Parameter(torch.zeros(2, config.n_heads, config.head_dim, config.head_dim))
        self.log_scales = nn.Parameter(torch.zeros(config.n_heads, 1, config.head_dim))

    def maps(self) -> Float[Tensor, "h d d"]:
        """The linear map of each head, applied to row vectors from the right."""
        dtype = torch.promote_types(self.generators.dtype, torch.float32)
        left, right = torch.linalg.matrix_exp((self.generators - self.generators.mT).to(dtype))
        return right * self.log_scales.to(dtype).exp() @ left.mT

    def rotate(self, x: Float[Tensor, "b h t d"], pos: Tensor, side: Side) -> Float[Tensor, "b h t d"]:
        return self.rope.rotate(x @ self.maps().to(x.dtype), pos, side)
