"""Attention with linear biases."""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from spectrope.core import ConfigError, require_least
from spectrope.encodings.base import EncodingConfig, LagBias, Scope, Tag
from spectrope.encodings.parts import Constant


def alibi_slopes(n_heads: int) -> Float[Tensor, " h"]:
    r"""The authors' slopes: :math:`m_h = 2^{-8h/H}`, h = 1, ..., H, for H a power of two.

    For other numbers of heads, the slopes are those of the next smaller power of two, followed by every
    second slope of the next larger one.

    Raises:
        ConfigError: If there is no head.
    """
    if n_heads < 1:
        raise ConfigError(f"n_heads must be at least 1; got {n_heads}.")
    below = 1 << (n_heads.bit_length() - 1)
    whole = 2.0 ** (-8 / below * torch.arange(1, below + 1, dtype=torch.float64))
    between = 2.0 ** (-4 / below * torch.arange(1, 2 * below, 2, dtype=torch.float64))
    return torch.cat([whole, between[: n_heads - below]])


def exponential_slopes(n_heads: int) -> Float[Tensor, " h"]:
    r"""Slopes :math:`e^{-h/H}`, h = 0, ..., H - 1: far steeper than the authors'."""
    return (-torch.arange(n_heads, dtype=torch.float64) / n_heads).exp()


class ALiBi(LagBias, name="alibi"):
    r"""Subtracts a multiple of the distance from each logit, with a slope per head:
    :math:`b_h(n) = -m_h |n|`, or :math:`-m_h \max(n, 0)`.

    Slopes follow the authors' code, also if `n_heads` is not a power of two.

    References:
        Train Short, Test Long: Attention with Linear Biases (Press et al., 2022).
    """

    family = "relative bias"

    @dataclass(frozen=True, kw_only=True)
    class Config(EncodingConfig):
        """Configuration of the slopes."""

        n_heads: int = 16
        slopes: Literal["standard", "exponential"] = "standard"  # R5 has exp(-h / n_heads).
        learned: bool = False  # Whether training moves the slopes; each layer then has its own.
        symmetric: bool = True  # Whether the future is penalised too, where nothing masks it.

        def __post_init__(self) -> None:
            require_least(self, 1, "n_heads")

    def setup(self, config: "ALiBi.Config") -> None:
        slopes = (alibi_slopes if config.slopes == "standard" else exponential_slopes)(config.n_heads)
        self.symmetric = config.symmetric
        self.fixed, self.trained = Constant(slopes), None
        if config.learned:
            self.trained = nn.Parameter(slopes.to(torch.get_default_dtype()))
            self.tags, self.scope = self.tags | {Tag.LEARNED}, Scope.LAYER

    @property
    def slopes(self) -> Float[Tensor, " h"]:
        """Logit units per position, for each head."""
        return self.fixed.value if self.trained is None else self.trained

    def lag_bias(self, lag: Tensor) -> Tensor:
        dtype = torch.promote_types(lag.dtype, torch.float32)
        distance = lag.abs() if self.symmetric else lag.clamp(min=0)
        return -distance[..., None].to(dtype) * self.slopes.to(dtype)
