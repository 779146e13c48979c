"""Contextual position encoding."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from spectrope.core import own_precision, require_least
from spectrope.encodings.base import Context, Encoding, EncodingConfig, Form, Scope, Tag


class CoPE(Encoding, name="cope"):
    r"""Adds a trained bias that depends on a gated count of the tokens from key to query:
    :math:`b_{ij} = q_i\,e(p_{ij})/\sqrt d`.

    The count is :math:`p_{ij} = \sum_{l=j}^{i} \sigma(q_i k_l/\sqrt d)`. It is fractional, so :math:`e`
    interpolates between the rows of a trained table; the last row is used for all larger counts. Keys after
    the query are not counted, whether or not they are masked.

    References:
        Contextual Position Encoding: Learning to Count What's Important (Golovneva et al., 2024);
        scaled as in the authors' code.
    """

    family = "content-aware"
    form = Form.DOT_PLUS_BIAS
    tags = frozenset({Tag.SHIFT_INVARIANT, Tag.LEARNED})
    scope = Scope.LAYER

    @dataclass(frozen=True, kw_only=True)
    class Config(EncodingConfig):
        """Size of the table, which starts at zero."""

        head_dim: int = 16
        n_positions: int = 64  # Rows, for counts 0, ..., n_positions - 1.

        def __post_init__(self) -> None:
            require_least(self, 1, "head_dim", "n_positions")

    def setup(self, config: "CoPE.Config") -> None:
        self.table = nn.Parameter(torch.zeros(config.n_positions, config.head_dim))

    def bias(self, ctx: Context) -> Tensor:
        dtype = torch.promote_types(ctx.q.dtype, torch.float32)
        q, k = ctx.q.to(dtype) * ctx.scale, ctx.k.to(dtype)
        counted = (ctx.lag >= 0)[:, None]
        counted = counted if ctx.mask is None else counted & ctx.mask
        with own_precision(q):
            gates, scores = (q @ k.transpose(-1, -2)).sigmoid() * counted, q @ self.table.to(dtype).T
        position = gates.flip(-1).cumsum(-1).flip(-1).clamp(max=len(self.table) - 1)
        below, above = (scores.gather(-1, row.long()) for row in (position.floor(), position.ceil()))
        return torch.lerp(below, above, position - position.floor())
