"""Lanczos' method for the largest eigenvalue, stopped by an estimate of the value's own error."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import scipy.linalg
import torch
from jaxtyping import Inexact
from torch import Tensor

from spectrope.spectral.checks import check

FAR = 10  # Residuals by which a run must be below the best value to be given up.
TINY = torch.finfo(torch.float64).tiny


@dataclass(frozen=True)
class RitzValue:
    """The largest Ritz value of a Krylov space; a lower bound on the largest eigenvalue, up to rounding.

    Args:
        value: In the units of the operator.
        residual_bound: An eigenvalue lies within this distance of `value`.
    """

    value: float
    residual_bound: float


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
    apply: Callable[[Tensor], Tensor],
    start: Start,
    tolerance: float,
    max_products: int,
    best: float = -math.inf,
) -> RitzValue:
    r"""Lanczos' three-term recurrence for the largest eigenvalue of a Hermitian operator.

    ARPACK can only be told to stop on the residual r. The extremes of a Toeplitz matrix are
    :math:`O(n^{-3})` apart, so r falls hundreds of products later than the value's own error, which is at
    most :math:`r^2 / \text{gap}` (Kato and Temple). Here the gap is the lesser of the one given and that
    between the two leading Ritz values, an estimate; the residual reported is the proven one. Rounding makes
    the vectors lose their orthogonality only as Ritz values converge (Paige), and we stop when the one sought
    does: none is kept.

    Args:
        apply: x -> A x for a vector.
        start: Where to start, not at zero.
        tolerance: Error of the value at which to stop, in the units of A.
        max_products: When to stop in any case, at least 1.
        best: A value found elsewhere; the run stops once it is clear that it stays below.

    Raises:
        ConfigError: If the start is zero.

    References:
        Accuracy and effectiveness of the Lanczos algorithm (Paige, 1980).
    """
    norm = torch.linalg.vector_norm(start.vector)
    check(norm.item() > 0, "start of the Lanczos process must not vanish.")
    before, now = torch.zeros_like(start.vector), start.vector / norm
    diagonal, off = [], [0.0]
    while True:
        image = apply(now).sub_(before, alpha=off[-1])
        diagonal.append(torch.linalg.vecdot(now, image).real.item())
        image.sub_(now, alpha=diagonal[-1])
        off.append(torch.linalg.vector_norm(image).item())
        is_last = len(diagonal) == max_products
        if is_last or off[-1] <= tolerance or _is_checked(len(diagonal)):
            value, residual, gap = _leading(diagonal, off[1:])
            is_near = min(residual, start.ceiling - value) <= tolerance
            has_converged = is_near or residual**2 <= tolerance * min(gap, start.gap)
            if is_last or has_converged or value + FAR * residual < best:
                return RitzValue(value, residual)
        before, now = now, image.div_(max(off[-1], TINY))


def _is_checked(products: int) -> bool:
    """Whether to look for convergence: after 1, 2 and every fourth product, later every sixteenth."""
    return products <= 2 or products % (4 if products <= 64 else 16) == 0


def _leading(diagonal: list[float], off: list[float]) -> tuple[float, float, float]:
    """Largest Ritz value, its residual and its distance to the next one (0 while there is none)."""
    m = len(diagonal)
    if m == 1:
        return diagonal[0], off[0], 0.0
    values, vectors = scipy.linalg.eigh_tridiagonal(
        diagonal, off[:-1], select="i", select_range=(m - 2, m - 1), check_finite=False
    )
    return float(values[1]), float(off[-1] * abs(vectors[-1, 1])), float(values[1] - values[0])


def best_start(apply: Callable[[Tensor], Tensor], trial: Inexact[Tensor, "m n"], ceiling: float) -> Start:
    """The leading Ritz vector of a Hermitian operator on the span of a few rows; the next gives the gap.

    Directions of the span that rounding cannot tell from zero are left out.

    Args:
        apply: X -> A X along the last dimension.
        trial: Rows that span the trial space, not all zero.
        ceiling: An upper bound on the operator's largest eigenvalue.
    """
    sizes, directions = torch.linalg.eigh(trial.conj() @ trial.T)
    keep = sizes > 1e-10 * sizes[-1]
    base = (directions[:, keep] * sizes[keep].rsqrt()).T @ trial
    projected = base.conj() @ apply(base).T
    values, vectors = torch.linalg.eigh((projected + projected.mH) / 2)
    gap = (values[-1] - values[-2]).item() if len(values) > 1 else math.inf
    return Start(vectors[:, -1] @ base, gap, ceiling)
