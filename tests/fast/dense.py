"""The sums of polynomial attention as they are written down, in quadratic time."""

import torch
from torch import Tensor

from spectrope.fast.chunkwise import PolynomialWeights


def dense_polynomial(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    weights: PolynomialWeights,
    factor: Tensor | None = None,
    keys: Tensor | None = None,
) -> Tensor:
    """Normalised sums with weights P(q k), times a factor of each pair; 0 where no key is seen."""
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    products = q @ k.mT
    weight = sum(a * products**m for m, a in enumerate(weights.coefficients))
    if factor is not None:
        weight = weight * factor
    if weights.causal:
        weight = weight.tril(k.shape[-2] - q.shape[-2])
    if keys is not None:
        weight = weight * keys[:, None, None, :]
    below = weight.sum(-1, keepdim=True)
    return (weight @ v) / torch.where(below == 0, 1.0, below)
