"""Lanczos' method for one end of a spectrum, stopped by an estimate of the value's own error."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.linalg
import torch
from jaxtyping import Inexact
from torch import Tensor

from spectrope.spectral.checks import check


@dataclass(frozen=True)
class RitzValue:
    """The largest Ritz value of a Krylov space; a lower bound on the largest eigenvalue, up to rounding.

    Args:
        value: In the units of the operator.
        residual_bound: An eigenvalue lies within this distance of `value`.
        products: Matrix-vector products taken.
    """

    value: float
    residual_bound: float
    products: int


@dataclass(frozen=True, eq=False)
class Start:
    """Where a Lanczos run starts, and what is known of its goal.

    Args:
        vector: Close to the eigenvector sought, with shape (n,).
        gap: Estimated distance to the next eigenvalue that the run can meet.
        ceiling: An upper bound on the eigenvalue.
    """

    vector: Inexact[Tensor, " n"]
    gap: float = math.inf
    ceiling: float = math.inf


def largest_ritz_value(
    apply: Callable[[Tensor], Tensor], start: Start, tolerance: float, max_products: int
) -> RitzValue:
    r"""Lanczos' three-term recurrence for the largest eigenvalue of a Hermitian operator.

    ARPACK can only be told to stop on the residual r. The extremes of a Toeplitz matrix are
    :math:`O(n^{-3})` apart, so r falls hundreds of products later than the value's own error, which is at
    most :math:`r^2 / \text{gap}` (Kato and Temple). Here the gap is the lesser of the one given and that
    between the two leading Ritz values, an estimate; the residual reported is the proven one. Rounding makes
    the vectors lose their orthogonality only as Ritz values converge (Paige), and we stop when the one sought
    does: none is kept.

    Args:
        apply: x -> A x.
        start: The vector to start from, not zero.
        tolerance: Error of the value at which to stop, in the units of A.
        max_products: When to stop in any case, at least 1.

    Raises:
        ConfigError: If the start is zero.

    References:
        Accuracy and effectiveness of the Lanczos algorithm (Paige, 1980).
    """
    norm = torch.linalg.vector_norm(start.vector)
    check(norm.item() > 0, "start of the Lanczos process must not vanish.")
    before, now = torch.zeros_like(start.vector), start.vector / norm
    diagonal, off = np.zeros(max_products), np.zeros(max_products + 1)
    ritz, residual, m = 0.0, 0.0, -1
    for m in range(max_products):
        image = apply(now).sub_(before, alpha=off[m])
        diagonal[m] = torch.vdot(now, image).real.item()
        image.sub_(now, alpha=diagonal[m])
        off[m + 1] = torch.linalg.vector_norm(image).item()
        if is_checked(m) or m == max_products - 1 or off[m + 1] <= tolerance:
            ritz, residual, gap = _leading(diagonal[: m + 1], off[1 : m + 2])
            error = min(residual, start.ceiling - ritz)
            if error <= tolerance or residual**2 <= tolerance * min(gap, start.gap):
                break
        before, now = now, image.div_(off[m + 1])
    return RitzValue(ritz, residual, m + 1)


def is_checked(m: int) -> bool:
    """Whether to look for convergence after product m: 0, 1, 3, then every fourth, later every sixteenth."""
    return m < 2 or (m + 1) % (4 if m < 64 else 16) == 0


def _leading(diagonal: np.ndarray, off: np.ndarray) -> tuple[float, float, float]:
    """Largest Ritz value, its residual and its distance to the next one (0 while there is none)."""
    if len(diagonal) == 1:
        return float(diagonal[0]), float(off[0]), 0.0
    last = len(diagonal) - 1
    values, vectors = scipy.linalg.eigh_tridiagonal(
        diagonal, off[:-1], select="i", select_range=(last - 1, last)
    )
    return float(values[1]), float(off[-1] * abs(vectors[-1, 1])), float(values[1] - values[0])


def best_start(
    apply: Callable[[Tensor], Tensor], trial: Inexact[Tensor, "m n"], ceiling: float = math.inf
) -> Start:
    """The leading Ritz vector of a Hermitian operator on the span of a few rows; the next one gives the gap.

    Directions of the span that rounding cannot tell from zero are left out.

    Args:
        apply: X -> A X along the last dimension.
        trial: Rows that span the trial space, not all zero.
        ceiling: An upper bound on the operator's largest eigenvalue.
    """
    sizes, directions = torch.linalg.eigh(trial.conj() @ trial.T)
    keep = sizes > 1e-10 * sizes[-1]
    orthonormal = (directions[:, keep] / sizes[keep].sqrt()).T @ trial
    projected = orthonormal.conj() @ apply(orthonormal).T
    values, vectors = torch.linalg.eigh((projected + projected.mH) / 2)
    gap = (values[-1] - values[-2]).item() if len(values) > 1 else math.inf
    return Start(vectors[:, -1] @ orthonormal, gap, ceiling)
