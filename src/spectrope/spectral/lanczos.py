"""Lanczos' method for one end of a spectrum, stopped by an estimate of the value's own error."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.linalg
import torch
from jaxtyping import Inexact
from torch import Tensor

from spectrope.spectral.checks import check

BEHIND = 10
TINY = torch.finfo(torch.float64).tiny
(STEMR,) = scipy.linalg.get_lapack_funcs(("stemr",), dtype=np.float64)  # without eigh_tridiagonal's checks


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
    """As `best_ritz_value`, of one run, with x -> A x for a vector."""
    return best_ritz_value(lambda x: apply(x[0])[None], [start], tolerance, max_products)


def best_ritz_value(
    apply: Callable[[Tensor], Tensor], starts: Sequence[Start], tolerance: float, max_products: int
) -> RitzValue:
    r"""Lanczos' three-term recurrence for the largest eigenvalue of a Hermitian operator, from some starts.

    ARPACK can only be told to stop on the residual r. The extremes of a Toeplitz matrix are
    :math:`O(n^{-3})` apart, so r falls hundreds of products later than the value's own error, which is at
    most :math:`r^2 / \text{gap}` (Kato and Temple). Here the gap is the lesser of the one given and that
    between the two leading Ritz values, an estimate; the residual reported is the proven one. Rounding makes
    the vectors lose their orthogonality only as Ritz values converge (Paige), and we stop when the one sought
    does: none is kept. Runs go in step, so that one product may serve them all, counted once. The row of one
    that is done is zero from then on; so is that of one left behind, `BEHIND` residuals below a run that is
    done.

    Args:
        apply: X -> A X for rows that are the vectors of the runs, with shape (runs, n).
        starts: The vectors to start from, not zero.
        tolerance: Error of the value at which to stop, in the units of A.
        max_products: When to stop in any case, at least 1.

    Raises:
        ConfigError: If a start is zero.

    References:
        Accuracy and effectiveness of the Lanczos algorithm (Paige, 1980).
    """
    now = torch.stack([start.vector for start in starts])
    norms = torch.linalg.vector_norm(now, dim=1, keepdim=True)
    check(bool((norms > 0).all()), "start of the Lanczos process must not vanish.")
    runs = [_Run(start, tolerance, max_products) for start in starts]
    before, now, norms = torch.zeros_like(now), now / norms, torch.zeros_like(norms)
    while not all(run.is_done for run in runs):
        image = apply(now).sub_(before.mul_(norms))
        diagonal = torch.linalg.vecdot(now, image).real[:, None]
        image.sub_(now * diagonal)
        norms = torch.linalg.vector_norm(image, dim=1, keepdim=True)
        running = [run for run in runs if not run.is_done]
        for run, *pair in zip(runs, diagonal.flatten().tolist(), norms.flatten().tolist(), strict=True):
            run.extend(*pair)
        for run in running:
            run.compare(runs)
        done = [row for row, run in enumerate(runs) if run.is_done and run in running]
        now[done], image[done] = 0, 0
        before, now = now, image.div_(norms.clamp_(min=TINY))
    best = max(runs, key=lambda run: run.value)
    return RitzValue(best.value, best.residual, max(len(run.diagonal) for run in runs))


class _Run:
    """The tridiagonal matrix of one run, and whether its leading Ritz value is good enough."""

    def __init__(self, start: Start, tolerance: float, most: int) -> None:
        self.start, self.tolerance, self.most = start, tolerance, most
        self.diagonal: list[float] = []
        self.off: list[float] = []
        self.is_done, self.value, self.residual = False, -math.inf, math.inf

    def extend(self, diagonal: float, off: float) -> None:
        """Take the entries of one more product, unless it is done."""
        if self.is_done:
            return
        self.diagonal.append(diagonal)
        self.off.append(off)
        m, is_last = len(self.diagonal) - 1, len(self.diagonal) == self.most
        if is_checked(m) or is_last or off <= self.tolerance:
            self.value, self.residual, gap = _leading(np.array(self.diagonal), np.array(self.off))
            self.is_done = is_last or self._has_converged(gap)

    def compare(self, runs: "Sequence[_Run]") -> None:
        """Be done if a run that is done is far ahead."""
        ahead = max((run.value for run in runs if run.is_done), default=-math.inf)
        self.is_done |= self.value + BEHIND * self.residual < ahead

    def _has_converged(self, gap: float) -> bool:
        error = min(self.residual, self.start.ceiling - self.value)
        return error <= self.tolerance or self.residual**2 <= self.tolerance * min(gap, self.start.gap)


def is_checked(m: int) -> bool:
    """Whether to look for convergence after product m: 0, 1, 3, then every fourth, later every sixteenth."""
    return m < 2 or (m + 1) % (4 if m < 64 else 16) == 0


def _leading(diagonal: np.ndarray, off: np.ndarray) -> tuple[float, float, float]:
    """Largest Ritz value, its residual and its distance to the next one (0 while there is none)."""
    if len(diagonal) == 1:
        return float(diagonal[0]), float(off[0]), 0.0
    m, by_index = len(diagonal), 2
    _, values, vectors, info = STEMR(diagonal, off.copy(), by_index, 0.0, 0.0, m - 1, m)
    assert info == 0, f"LAPACK's stemr failed with {info}"
    error = off[-1] * abs(vectors[m - 1, 1])
    return float(values[1]), float(error), float(values[1] - values[0])


def best_starts(
    apply: Callable[[Tensor], Tensor], trials: Inexact[Tensor, "c m n"], ceiling: float = math.inf
) -> list[Start]:
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


def _leading_start(base: Inexact[Tensor, "m n"], image: Inexact[Tensor, "m n"], ceiling: float) -> Start:
    projected = base.conj() @ image.T
    values, vectors = torch.linalg.eigh((projected + projected.mH) / 2)
    gap = (values[-1] - values[-2]).item() if len(values) > 1 else math.inf
    return Start(vectors[:, -1] @ base, gap, ceiling)
