"""Untied positional attention."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from spectrope.core import require_least
from spectrope.encodings.base import Context, Encoding, EncodingConfig, Form, Tag
from spectrope.encodings.parts import lookup


class TUPE(Encoding, name="tupe"):
    r"""Adds a score of positions, with separate projections, to the score of contents:
    :math:`(q_i k_j + (U p_i)(V p_j))/\sqrt{2d}`.

    :math:`p` are normalised trained vectors of absolute positions; all layers share the scores. Together with
    a `T5` table in a `Sum`, this is TUPE-R. The special treatment of [CLS] is omitted, because there is no
    such token.

    Raises:
        UnsupportedError: If a position lies outside the table.

    References:
        Rethinking Positional Encoding in Language Pre-training (Ke et al., 2021); the authors' code.
    """

    family = "absolute"
    form = Form.DOT_PLUS_BIAS
    logit_scale = 2**-0.5
    tags = frozenset({Tag.CONTENT_FREE, Tag.LEARNED})

    @dataclass(frozen=True, kw_only=True)
    class Config(EncodingConfig):
        """Sizes of the vectors and their projections."""

        d_model: int = 256  # Width of the vectors.
        n_heads: int = 16
        head_dim: int = 16
        max_length: int = 128  # Positions that have a vector.
        std: float = 0.02  # Standard deviation of the initial entries.

        def __post_init__(self) -> None:
            require_least(self, 1, "d_model", "n_heads", "head_dim", "max_length")
            require_least(self, 0, "std")

    def setup(self, config: "TUPE.Config") -> None:
        self.n_heads = config.n_heads
        self.table = nn.Parameter(torch.randn(config.max_length, config.d_model) * config.std)
        self.norm = nn.LayerNorm(config.d_model)
        self.queries = nn.Linear(config.d_model, config.n_heads * config.head_dim)
        self.keys = nn.Linear(config.d_model, config.n_heads * config.head_dim)
        for projection in (self.queries, self.keys):
            nn.init.normal_(projection.weight, std=config.std)
            nn.init.zeros_(projection.bias)

    def bias(self, ctx: Context) -> Tensor:
        q, k = self._heads(self.queries, ctx.q_pos), self._heads(self.keys, ctx.k_pos)
        return q @ k.transpose(-1, -2) * (ctx.scale * self.logit_scale)

    def _heads(self, projection: nn.Linear, pos: Tensor) -> Float[Tensor, "b h t d"]:
        vectors = projection(self.norm(lookup(self.table, pos, self)))
        return vectors.unflatten(-1, (self.n_heads, -1)).transpose(1, 2)
