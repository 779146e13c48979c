"""Functional interpolation of relative positions."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from spectrope.core import own_precision, require, require_least
from spectrope.encodings.base import Context, Encoding, EncodingConfig, Form, Scope, Tag

EPSILON = 1e-6  # Added to the normaliser, as in the authors' listing.


class FIRE(Encoding, name="fire"):
    r"""Adds a bias that a small network computes from the lag, relative to the query's position:
    :math:`f_h(\psi(i-j)/(\psi(\max(L, i)) + 10^{-6}))`.

    With :math:`\psi(x) = \ln(|c\,x| + 1)`, lags of the past map into [0, 1], whatever the length; those of
    the future, where attention is not causal, may exceed 1. c and L are trained, and f is a perceptron with
    one hidden layer of rectified units and an output per head.

    References:
        Functional Interpolation for Relative Positions Improves Long Context Transformers (Li et al., 2024).
    """

    family = "relative bias"
    form = Form.DOT_PLUS_BIAS
    tags = frozenset({Tag.CONTENT_FREE, Tag.LEARNED})
    scope = Scope.LAYER

    @dataclass(frozen=True, kw_only=True)
    class Config(EncodingConfig):
        """Size of the network and where the trained numbers start."""

        n_heads: int = 16
        width: int = 32  # Hidden units.
        compression: float = 0.1  # Start of c, per position.
        threshold: float = 512.0  # Start of L, in positions, up to which interpolation is not progressive.

        def __post_init__(self) -> None:
            require_least(self, 1, "n_heads", "width")
            require(self.compression > 0, self, "compression", "positive")
            require(self.threshold > 0, self, "threshold", "positive")

    def setup(self, config: "FIRE.Config") -> None:
        self.network = nn.Sequential(
            nn.Linear(1, config.width), nn.ReLU(), nn.Linear(config.width, config.n_heads)
        )
        self.compression = nn.Parameter(torch.tensor(config.compression))
        self.stretch = nn.Parameter(torch.tensor(1.0))  # multiplies the threshold
        self.threshold = config.threshold

    def bias(self, ctx: Context) -> Tensor:
        dtype = torch.promote_types(self.stretch.dtype, torch.float32)
        compression, limit = self.compression.to(dtype), (self.stretch.to(dtype) * self.threshold).abs()
        longest = torch.maximum(ctx.q_pos.to(dtype), limit)
        distance, scale = ((compression * x).abs().log1p() for x in (ctx.lag, longest[..., None]))
        shares = (distance / (scale + EPSILON))[..., None]
        with own_precision(shares):  # In bfloat16 neighbouring lags would be one.
            return self.network(shares.to(self.stretch.dtype)).movedim(-1, -3).contiguous()
