"""T5's relative attention bias."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor, nn

from spectrope.core import ConfigError, require, require_least
from spectrope.encodings.base import EncodingConfig, LagBias, Tag
from spectrope.encodings.parts import lookup


def t5_bucket(lag: Tensor, *, bidirectional: bool, n_buckets: int, max_distance: int) -> Int[Tensor, "..."]:
    r"""Bucket of each lag: one per small lag, then logarithmically spaced, one for all larger lags.

    Of N buckets, those of one direction, :math:`E = \lfloor N/2 \rfloor` hold a lag each, and bucket
    :math:`\min(N - 1, E + \lfloor (N - E) \log(n/E) / \log(D/E) \rfloor)` holds lag :math:`n \ge E`, where D
    is `max_distance`. Logarithms are computed in float32, as in the authors' code, so that lags at bucket
    boundaries agree.

    Args:
        lag: Query position minus key position, of any shape; a fraction counts as its whole part.
        bidirectional: Whether future lags use the upper half of the buckets, or share bucket 0.
        n_buckets: Number of buckets, of both directions.
        max_distance: Lag at which the logarithmic scale ends; the last bucket begins no later than there.

    Raises:
        ConfigError: If a direction has fewer than two buckets, or `max_distance` is none above E.
    """
    exact = n_buckets // (4 if bidirectional else 2)
    if exact < 1 or max_distance <= exact:
        raise ConfigError(
            f"max_distance must exceed the number of buckets with a lag each ({exact}, and at least 1); got "
            f"{max_distance} with {n_buckets} buckets."
        )
    lag, future = lag.long(), 0
    if bidirectional:
        n_buckets //= 2
        future = (lag < 0) * n_buckets
        lag = lag.abs()
    lag = lag.clamp(min=0)
    ratio = lag.clamp(min=exact).float() / exact
    far = exact + (ratio.log() / math.log(max_distance / exact) * (n_buckets - exact)).long()
    return future + torch.where(lag < exact, lag, far.clamp(max=n_buckets - 1))


class T5(LagBias, name="t5"):
    r"""Adds a trained bias per head and bucket of lags: :math:`b_h(n) = t_{\mathrm{bucket}(n),\,h}`.

    All layers share one table. Buckets follow the authors' code.

    References:
        Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer (Raffel et al.,
        2020); Mesh TensorFlow, transformer_layers.py.
    """

    family = "relative bias"
    tags = LagBias.tags | {Tag.LEARNED}

    @dataclass(frozen=True, kw_only=True)
    class Config(EncodingConfig):
        """Buckets of the lag and initialisation of their table."""

        n_heads: int = 16
        causal: bool = True  # Whether attention is causal; else half of the buckets are for the future.
        n_buckets: int = 32
        max_distance: int = 128  # Lag at which the logarithmic scale of the buckets ends, in positions.
        std: float = 0.02  # Standard deviation of the initial entries; T5 itself takes d_model ** -0.5.

        def __post_init__(self) -> None:
            require_least(self, 1, "n_heads")
            require(self.n_buckets >= 4 and self.n_buckets % 2 == 0, self, "n_buckets", "even and at least 4")
            exact = self.n_buckets // (2 if self.causal else 4)
            require(
                self.max_distance > exact, self, "max_distance", f"above {exact}, the lags with a bucket each"
            )
            require_least(self, 0, "std")

    def setup(self, config: "T5.Config") -> None:
        self.bidirectional = not config.causal
        self.n_buckets, self.max_distance = config.n_buckets, config.max_distance
        self.table = nn.Parameter(torch.randn(config.n_buckets, config.n_heads) * config.std)

    def lag_bias(self, lag: Tensor) -> Tensor:
        bucket = t5_bucket(
            lag, bidirectional=self.bidirectional, n_buckets=self.n_buckets, max_distance=self.max_distance
        )
        return lookup(self.table, bucket, self)
