"""Kernelised relative positions."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from spectrope.core import require_least
from spectrope.encodings.base import EncodingConfig, LagBias, Scope, Tag

LEAST = 0.01  # The authors keep both parameters from here on.


class Kerple(LagBias):
    """Base of the two kernels: two trained parameters per head, kept in the range in which the kernel is
    valid."""

    family = "relative bias"
    tags = LagBias.tags | {Tag.LEARNED}
    scope = Scope.LAYER
    widest: ClassVar[tuple[float, float]]  # Initial numbers are uniform below these.

    def setup(self, config: Any) -> None:
        self.amplitude = nn.Parameter(torch.rand(config.n_heads) * self.widest[0])
        self.shape = nn.Parameter(torch.rand(config.n_heads) * self.widest[1])


def kept_within(parameter: Tensor, most: float = float("inf")) -> Tensor:
    """Clamp a parameter, but pass gradients through unchanged, so that no head remains stuck at a bound."""
    return parameter + (parameter.clamp(LEAST, most) - parameter).detach()


class KerpleLog(Kerple, name="kerple_log"):
    r"""Subtracts the logarithm of the distance, with two trained parameters per head:
    :math:`b_h(n) = -r_h \ln(1 + s_h |n|)`.

    Both parameters are positive and initialised uniformly, r on [0, 2) and s on [0, 1), as in the authors'
    code.

    References:
        KERPLE: Kernelized Relative Positional Embedding for Length Extrapolation (Chi et al., 2022),
        the logarithmic variant.
    """

    @dataclass(frozen=True, kw_only=True)
    class Config(EncodingConfig):
        """The logarithmic kernel has only its number of heads to configure."""

        n_heads: int = 16

        def __post_init__(self) -> None:
            require_least(self, 1, "n_heads")

    widest = (2.0, 1.0)

    def lag_bias(self, lag: Tensor) -> Tensor:
        distance = lag.abs()[..., None].to(torch.promote_types(lag.dtype, torch.float32))
        r, s = (kept_within(p).to(distance.dtype) for p in (self.amplitude, self.shape))
        return -r * (s * distance).log1p()


class KerplePower(Kerple, name="kerple_power"):
    r"""Subtracts a power of the distance, with two trained parameters per head:
    :math:`b_h(n) = -r_h |n|^{s_h}`, s at most 2.

    Both parameters are positive and initialised uniformly, r on [0, 1) and s on [0, 2), as in the authors'
    code.

    References:
        KERPLE: Kernelized Relative Positional Embedding for Length Extrapolation (Chi et al., 2022),
        the power variant.
    """

    @dataclass(frozen=True, kw_only=True)
    class Config(EncodingConfig):
        """The power kernel has only its number of heads to configure."""

        n_heads: int = 16

        def __post_init__(self) -> None:
            require_least(self, 1, "n_heads")

    widest = (1.0, 2.0)

    def lag_bias(self, lag: Tensor) -> Tensor:
        distance = lag.abs()[..., None].to(torch.promote_types(lag.dtype, torch.float32))
        r, s = kept_within(self.amplitude).to(distance.dtype), kept_within(self.shape, 2.0).to(distance.dtype)
        return -r * distance**s
