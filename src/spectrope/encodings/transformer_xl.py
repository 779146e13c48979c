"""Transformer-XL's relative positions."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from spectrope.core import require, require_least
from spectrope.encodings.base import Context, Encoding, EncodingConfig, Form, Scope, Tag
from spectrope.encodings.schedules.geometric import Geometric


class TransformerXL(Encoding, name="transformer_xl"):
    r"""Adds a score of the query with sinusoids of the lag, with trained query biases for content and lag:
    :math:`((q_i + u) k_j + (q_i + v) W r_{i-j})/\sqrt d`.

    :math:`r_n = (\sin n\omega, \cos n\omega)` has the width of the model; u, v and W are trained, per
    layer. The product with :math:`r_{i-j}` is computed from the sines and cosines of the positions of query
    and key, which requires no vector per pair of tokens.

    References:
        Transformer-XL: Attentive Language Models beyond a Fixed-Length Context (Dai et al., 2019), Sec. 3.3.
    """

    family = "relative bias"
    form = Form.DOT_PLUS_BIAS
    tags = frozenset({Tag.SHIFT_INVARIANT, Tag.LEARNED})
    scope = Scope.LAYER

    @dataclass(frozen=True, kw_only=True)
    class Config(EncodingConfig):
        """Sizes, frequencies and initial values of the trained parameters."""

        d_model: int = 256  # Width of the sinusoidal vectors.
        n_heads: int = 16
        head_dim: int = 16
        base: float = 10000.0
        std: float = 0.02  # Standard deviation of the initial entries.

        def __post_init__(self) -> None:
            require(self.d_model > 0 and self.d_model % 2 == 0, self, "d_model", "even and positive")
            require_least(self, 1, "n_heads", "head_dim")
            require(self.base > 0, self, "base", "positive")
            require_least(self, 0, "std")

    def setup(self, config: "TransformerXL.Config") -> None:
        size = config.n_heads, 1, config.head_dim
        self.content_query = nn.Parameter(torch.randn(size) * config.std)
        self.lag_query = nn.Parameter(torch.randn(size) * config.std)
        shape = config.n_heads, config.head_dim, config.d_model
        self.projection = nn.Parameter(torch.randn(shape) * config.std)
        self.angles = Geometric(base=config.base).build(config.d_model)

    @property
    def pairwise(self) -> bool:
        return True

    def bias(self, ctx: Context) -> Tensor:
        dtype = ctx.q.dtype
        content = self.content_query.to(dtype) @ ctx.k.transpose(-1, -2)
        of_sine, of_cosine = ((ctx.q + self.lag_query.to(dtype)) @ self.projection.to(dtype)).chunk(2, -1)
        i, j = self.angles(ctx.q_pos)[:, None], self.angles(ctx.k_pos)[:, None]
        sin, cos = i.sin().to(dtype), i.cos().to(dtype)
        by_cosine, by_sine = of_sine * sin + of_cosine * cos, of_cosine * sin - of_sine * cos
        waves = torch.cat([j.cos(), j.sin()], -1).to(dtype)
        return (content + torch.cat([by_cosine, by_sine], -1) @ waves.transpose(-1, -2)) * ctx.scale
