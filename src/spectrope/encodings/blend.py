"""Rotated and plain logits together."""

from dataclasses import dataclass, field
from typing import Annotated

import torch
from jaxtyping import Float
from torch import Tensor, nn

from spectrope.core import OneOf, require, require_least
from spectrope.encodings.base import Context, Encoding, EncodingConfig, Form, Scope, Tag
from spectrope.encodings.parts import Pairing
from spectrope.encodings.rope import RoPE
from spectrope.encodings.schedules.base import SCHEDULES, Schedule
from spectrope.encodings.schedules.geometric import Geometric


class Blend(Encoding, name="blend"):
    r"""Adds logits with rotation, times a factor per head, to logits without rotation:
    :math:`q_i k_j + \alpha_h R(q_i, i) R(k_j, j)`.

    Both are divided by :math:`\sqrt d`. In the paper's terms, these are logits under :math:`\alpha G_e + J`.
    Both terms share the same queries and keys, whereas latent attention uses separate ones.

    References:
        Unpacking Positional Encoding in Transformers (Gu et al., 2025), Eq. 12, with J, all ones, where it
        has I.
    """

    family = "rotary"
    form = Form.DOT_PLUS_BIAS

    @dataclass(frozen=True, kw_only=True)
    class Config(EncodingConfig):
        """Shares, and the rotation."""

        n_heads: int = 16
        head_dim: int = 16  # Width of queries and keys.
        alpha: float = 1.0  # Weight of the rotated logits, or its start.
        learned: bool = False  # Whether training moves it, for each head; each layer then has its own.
        schedule: Annotated[Schedule, OneOf(SCHEDULES)] = field(default_factory=Geometric)
        pairs: Pairing = "adjacent"

        def __post_init__(self) -> None:
            even = self.head_dim > 0 and self.head_dim % 2 == 0
            require(even, self, "head_dim", "even and positive", "Blend rotates pairs of coordinates.")
            require_least(self, 1, "n_heads")

    def setup(self, config: "Blend.Config") -> None:
        rotation = RoPE.Config(head_dim=config.head_dim, schedule=config.schedule, pairs=config.pairs)
        self.rope = RoPE(rotation)
        self.tags = self.rope.tags - {Tag.ISOMETRIC, Tag.CONTENT_FREE}
        self.scope = self.rope.scope
        self.prefix_consistent = self.rope.prefix_consistent
        alpha = torch.full((config.n_heads, 1, 1), config.alpha)
        if config.learned:
            self.alpha = nn.Parameter(alpha)
            self.tags, self.scope = self.tags | {Tag.LEARNED}, Scope.LAYER
        else:
            self.register_buffer("alpha", alpha, persistent=False)

    @property
    def pairwise(self) -> bool:
        return True

    def bias(self, ctx: Context) -> Float[Tensor, "b h i j"]:
        return self.rope.logits(ctx) * self.alpha.to(ctx.q.dtype)
