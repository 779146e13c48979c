"""The decay of retentive networks."""

from dataclasses import dataclass

import torch
from torch import Tensor

from spectrope.core import require_least
from spectrope.encodings.base import EncodingConfig, LagBias
from spectrope.encodings.parts import Constant


class RetNet(LagBias, name="retnet"):
    r"""Multiplies attention weights by a constant per head to the power of the distance:
    :math:`b_h(n) = |n| \ln\gamma_h`, :math:`\gamma_h = 1 - 2^{-5-h}`.

    The bias is the logarithm of a decay. With `linear_attention`, it is the decay of retention, which
    multiplies products of queries and keys by :math:`\gamma^{i-j}`; with softmax attention, it is ALiBi with
    other slopes. For a decay that tokens control, use `fox` instead.

    References:
        Retentive Network: A Successor to Transformer for Large Language Models (Sun et al., 2023); rates of
        the authors' torchscale.
    """

    family = "relative bias"

    @dataclass(frozen=True, kw_only=True)
    class Config(EncodingConfig):
        """The decays."""

        n_heads: int = 16
        first: int = 5  # Head 0 loses 2 ** -first of its weight per position, the next half as much.

        def __post_init__(self) -> None:
            require_least(self, 1, "n_heads", "first")

    def setup(self, config: "RetNet.Config") -> None:
        lost = 2.0 ** -(config.first + torch.arange(config.n_heads, dtype=torch.float64))
        self.rates = Constant(torch.log1p(-lost))

    def lag_bias(self, lag: Tensor) -> Tensor:
        dtype = torch.promote_types(lag.dtype, torch.float32)
        return lag.abs()[..., None].to(dtype) * self.rates.value.to(dtype)
