"""Lanczos' method for the largest eigenvalue, stopped by an estimate of the value's own error."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.linalg
import torch
from jaxtyping import Inexact
from torch import Tensor

from spectrope.spectral.checks import check

FAR = 10  # Residuals by which a run that cannot win any more is below one that has converged.
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
class LanczosStart:
    """Starting point of a Lanczos run.

    Args:
        vector: Approximation of the eigenvector, with shape (n,).
        gap: Estimated distance to the next eigenvalue of the Krylov space.
        ceiling: An upper bound of the eigenvalue.
    """

    vector: Inexact[Tensor, " n"]
    gap: float = math.inf
    ceiling: float = math.inf


def best_ritz_value(
    apply: Callable[[Tensor], Tensor], starts: Sequence[LanczosStart], tolerance: float, max_products: int
) -> RitzValue:
    r"""Lanczos' three-term recurrence for the largest eigenvalue of a Hermitian operator, from some starts.

    ARPACK can only be told to stop on the residual r. The extremes of a Toeplitz matrix are
    :math:`O(n^{-3})` apart, so r falls hundreds of products later than the value's own error, which is at
    most :math:`r^2 / \text{gap}` (Kato and Temple). From the same starts SciPy's `eigsh` took 7.8 s against
    3.5 s for ALiBi's kernel at a million rows; for :math:`.9^{|d|}` it took 1.4 s against .02 s at 10,000
    rows, and 1,000 products at a million rows did not suffice (one thread of an AMD EPYC, both ends).

    The gap used is the smaller of the given one and the gap between the two leading Ritz values, and is an
    estimate; the reported residual is a proven bound. Vectors lose their orthogonality only as Ritz values
    converge (Paige), and the iteration stops when the required one does, so no vectors are stored. All runs
    advance together, so that one product serves them all; a run that has converged, or is `FAR` below one
    that has, is set to zero.

    Args:
        apply: X -> A X for rows that are the vectors of the runs, with shape (runs, n).
        starts: Where to start, not at zero.
        tolerance: Error of the value at which to stop, in the units of A.
        max_products: Maximum number of products, at least 1.

    Raises:
        ConfigError: If a start is zero.

    References:
        Accuracy and effectiveness of the Lanczos algorithm (Paige, 1980).
    """
    now = torch.stack([start.vector for start in starts])
    norms = torch.linalg.vector_norm(now, dim=1, keepdim=True)
    check(bool((norms > 0).all()), "start of the Lanczos process must not vanish.")
    before, now, norms = torch.zeros_like(now), now / norms, torch.zeros_like(norms)
    running, best, steps = list(range(len(starts))), RitzValue(-math.inf, math.inf), []
    while running:
        image = apply(now).sub_(before.mul_(norms))
        diagonal = torch.linalg.vecdot(now, image).real[:, None]
        image.sub_(now * diagonal)
        norms = torch.linalg.vector_norm(image, dim=1, keepdim=True)
        steps.append([diagonal.flatten().tolist(), norms.flatten().tolist()])
        is_last = len(steps) == max_products
        if is_last or _is_checked(len(steps)) or min(steps[-1][1][row] for row in running) <= tolerance:
            entries = np.array(steps)
            leading = {row: _leading(*entries[:, :, row].T) for row in running}
            done = [
                row for row in running if is_last or _has_converged(*leading[row], starts[row], tolerance)
            ]
            best = max([best, *(leading[row][0] for row in done)], key=lambda ritz: ritz.value)
            running = [row for row in running if row not in done and not _is_far_below(leading[row][0], best)]
            stopped = [row for row in range(len(starts)) if row not in running]
            now[stopped], image[stopped] = 0, 0
        before, now = now, image.div_(norms.clamp_(min=TINY))
    return best


def _has_converged(ritz: RitzValue, gap: float, start: LanczosStart, tolerance: float) -> bool:
    error = min(ritz.residual_bound, start.ceiling - ritz.value)
    return error <= tolerance or ritz.residual_bound**2 <= tolerance * min(gap, start.gap)


def _is_far_below(ritz: RitzValue, best: RitzValue) -> bool:
    return ritz.value + FAR * ritz.residual_bound < best.value


def _is_checked(products: int) -> bool:
    """Whether to look for convergence: after 1, 2 and every fourth product, later every sixteenth."""
    return products <= 2 or products % (4 if products <= 64 else 16) == 0


def _leading(diagonal: np.ndarray, off: np.ndarray) -> tuple[RitzValue, float]:
    """Largest Ritz value, and its distance to the next one (0 while there is none)."""
    m = len(diagonal)
    if m == 1:
        return RitzValue(float(diagonal[0]), float(off[0])), 0.0
    values, vectors = scipy.linalg.eigh_tridiagonal(
        diagonal, off[:-1], select="i", select_range=(m - 2, m - 1), check_finite=False
    )
    return RitzValue(float(values[1]), float(off[-1] * abs(vectors[-1, 1]))), float(values[1] - values[0])


def best_starts(
    apply: Callable[[Tensor], Tensor], trials: Inexact[Tensor, "c m n"], ceiling: float
) -> list[LanczosStart]:
    """The leading Ritz vector of a Hermitian operator on each span of a few rows; the next gives the gap.

    Directions of a span that rounding cannot tell from zero are left out.

    Args:
        apply: X -> A X along the last dimension, for (c, m, n).
        trials: Rows that span the trial spaces, not all zero, one space for each c.
        ceiling: An upper bound on the operator's largest eigenvalue.
    """
    bases, kept = zip(*(_orthonormal(trial) for trial in trials), strict=True)
    spaces = zip(bases, apply(torch.stack(bases)), kept, strict=True)
    return [_leading_start(base[-rows:], image[-rows:], ceiling) for base, image, rows in spaces]


def _orthonormal(trial: Inexact[Tensor, "m n"]) -> tuple[Inexact[Tensor, "m n"], int]:
    """Orthonormal rows of the same span, last in an array of its shape; the others are zero."""
    sizes, directions = torch.linalg.eigh(trial.conj() @ trial.T)
    keep = sizes > 1e-10 * sizes[-1]
    scale = torch.where(keep, sizes, math.inf).rsqrt()
    return (directions * scale).T @ trial, int(keep.sum())


def _leading_start(
    base: Inexact[Tensor, "m n"], image: Inexact[Tensor, "m n"], ceiling: float
) -> LanczosStart:
    projected = base.conj() @ image.T
    values, vectors = torch.linalg.eigh((projected + projected.mH) / 2)
    gap = (values[-1] - values[-2]).item() if len(values) > 1 else math.inf
    return LanczosStart(vectors[:, -1] @ base, gap, ceiling)
