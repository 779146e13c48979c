"""Singular values of full and causal logits, and how many of them matter."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from scipy.sparse.linalg import LinearOperator, svds
from torch import Tensor

from spectrope.spectral.checks import check, factors, vector
from spectrope.spectral.product import causal_matmul

DENSE_ROWS = 512


@dataclass(frozen=True)
class EffectiveRanks:
    r"""Three ways to count singular values σ; each is r for r equal ones, and at most the rank.

    Args:
        stable: :math:`\sum\sigma^2 / \sigma_{\max}^2`.
        participation: :math:`(\sum\sigma)^2 / \sum\sigma^2`.
        entropy: :math:`\exp(-\sum p \ln p)`, :math:`p = \sigma/\sum\sigma`.
    """

    stable: float
    participation: float
    entropy: float


def product_singular_values(q: Tensor, k: Tensor) -> Float[Tensor, " r"]:
    r"""All singular values of the full :math:`QK^\top` that need not vanish, in :math:`O(nd^2)`.

    With :math:`Q = U_Q R_Q` and :math:`K = U_K R_K` they are those of :math:`R_Q R_K^\top`: Gram matrices,
    which would square the condition number, are avoided. Errors are of the order of 1e-16 of the largest.

    Args:
        q: Queries, with shape (n, d).
        k: Keys, with shape (n, d).

    Returns:
        min(n, d) values in logit units, decreasing.
    """
    q, k = factors(q, k)
    r_q, r_k = (torch.linalg.qr(x, mode="r").R for x in (q, k))
    return torch.linalg.svdvals(r_q @ r_k.T)


def causal_singular_values(q: Tensor, k: Tensor, count: int = 1) -> Float[Tensor, " r"]:
    r"""Leading singular values of the causal logits, :math:`L_{ij} = \langle q_i, k_j\rangle` for j <= i,
    else 0.

    ARPACK by SciPy with products in O(nd), whose values are better than the 1e-8 that their residuals are
    held to; up to 512 rows are solved densely. Eigenvalues
    are not offered: those of a triangular matrix are its diagonal, which RoPE leaves as it is.

    Args:
        q: Queries, with shape (n, d).
        k: Keys, with shape (n, d).
        count: How many, from 1 to n.

    Returns:
        `count` values in logit units, decreasing.
    """
    q, k = factors(q, k)
    n = len(q)
    check(1 <= count <= n, f"count must lie between 1 and n = {n}; got {count}.")
    if n <= DENSE_ROWS or count >= n - 1:
        return torch.linalg.svdvals(torch.tril(q @ k.T))[:count]
    start = np.random.default_rng(0).standard_normal(n)
    _, values, _ = svds(_CausalLogits(q, k), k=count, v0=start, tol=1e-8)  # pyright: ignore[reportArgumentType]
    return torch.from_numpy(np.sort(values)[::-1].copy()).to(q.device)


class _CausalLogits(LinearOperator):
    """tril(Q K^T); its transpose is the same with time reversed and both sides exchanged."""

    def __init__(self, q: Float[Tensor, "n d"], k: Float[Tensor, "n d"]) -> None:
        self.q, self.k, self.q_back, self.k_back = q, k, q.flip(0), k.flip(0)
        super().__init__(np.dtype(np.float64), (len(q), len(q)))

    def _matvec(self, x: np.ndarray) -> np.ndarray:
        return causal_matmul(self.q, self.k, self._column(x)).cpu().numpy()

    def _rmatvec(self, x: np.ndarray) -> np.ndarray:
        return causal_matmul(self.k_back, self.q_back, self._column(x).flip(0)).flip(0).cpu().numpy()

    def _column(self, x: np.ndarray) -> Float[Tensor, "n 1"]:
        return torch.from_numpy(np.ascontiguousarray(x.reshape(-1, 1))).to(self.q)


def effective_ranks(singular_values: Tensor) -> EffectiveRanks:
    """Effective ranks of a matrix from its singular values, of shape (r,) in any order.

    Raises:
        ConfigError: If one is negative or all are zero.
    """
    values = vector(singular_values, "singular_values")
    check(
        not values.is_complex() and values.min().item() >= 0, "singular_values must be real and not negative."
    )
    check(
        values.max().item() > 0,
        "singular_values must not all be zero: the zero matrix has no effective rank.",
    )
    values = values / values.max()
    p = values / values.sum()
    energy = (values**2).sum()
    entropy = -torch.special.xlogy(p, p).sum()
    return EffectiveRanks(energy.item(), (values.sum() ** 2 / energy).item(), entropy.exp().item())
