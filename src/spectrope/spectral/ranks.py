"""Effective ranks: the number of significant singular values."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from spectrope.spectral.checks import check, wide


@dataclass(frozen=True, eq=False)
class EffectiveRanks:
    r"""Three ways to count singular values σ; each is r for r equal ones, and at most the rank.

    Args:
        stable: :math:`\sum\sigma^2 / \sigma_{\max}^2`.
        participation: :math:`(\sum\sigma)^2 / \sum\sigma^2`.
        entropy: :math:`\exp(-\sum p \ln p)`, :math:`p = \sigma/\sum\sigma`.
    """

    stable: Float[Tensor, "*b"]
    participation: Float[Tensor, "*b"]
    entropy: Float[Tensor, "*b"]


def effective_ranks(singular_values: Tensor) -> EffectiveRanks:
    """Effective ranks of many matrices from their singular values, NaN for a zero matrix.

    >>> effective_ranks(torch.tensor([[2.0, 2.0, 0.0], [3.0, 1.0, 0.0]])).participation
    tensor([2.0000, 1.6000], dtype=torch.float64)

    Args:
        singular_values: In any order, with shape (*b, r).

    Raises:
        ConfigError: If one is negative.
    """
    values = wide(singular_values, "singular_values")
    check(values.numel() > 0, "singular_values must number at least one.")
    is_valid = not values.is_complex() and values.min().item() >= 0
    check(is_valid, "singular_values must be real and not negative.")
    values = values / values.amax(-1, keepdim=True)
    p = values / values.sum(-1, keepdim=True)
    energy = (values**2).sum(-1)
    entropy = -torch.special.xlogy(p, p).sum(-1)
    return EffectiveRanks(energy, values.sum(-1) ** 2 / energy, entropy.exp())
