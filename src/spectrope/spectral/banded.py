"""Extreme eigenvalues of narrowly banded Toeplitz matrices: inverted Lanczos, proven by a factorisation."""

from dataclasses import replace

import numpy as np
import scipy.linalg
import torch
from jaxtyping import Inexact
from torch import Tensor

from spectrope.spectral.lanczos import RitzValue, Start, largest_ritz_value
from spectrope.spectral.operator import ToeplitzOperator

WIDEST = 32  # Lags beside the diagonal; a factor holds one more than that many numbers per row.
MOST_SOLVES = 100


class ShiftedBand:
    r"""The positive definite matrix :math:`\sigma I - sT`, factorised by Cholesky in :math:`O(nb^2)`.

    Args:
        operator: T, Hermitian, with b lags beside the diagonal.
        sign: s, 1 to look at the greatest eigenvalues of T, -1 to look at the least.
        shift: σ, in the units of T.

    Raises:
        numpy.linalg.LinAlgError: If the matrix is not positive definite: σ is no upper bound of s T.
    """

    def __init__(self, operator: ToeplitzOperator, sign: float, shift: float) -> None:
        n, b = operator.n, operator.bandwidth
        column = -sign * operator.lags[n - 1 : n + b].cpu().resolve_conj().numpy()
        column[0] += shift
        self._factor = scipy.linalg.cholesky_banded(
            np.repeat(column[:, None], n, axis=1), overwrite_ab=True, lower=True, check_finite=False
        )
        self._shift, self._diagonal = shift, float(column[0].real)

    def solve(self, x: Inexact[Tensor, " n"]) -> Inexact[Tensor, " n"]:
        """The solution y of (σI - sT) y = x."""
        found = scipy.linalg.cho_solve_banded((self._factor, True), x.cpu().numpy(), check_finite=False)
        return torch.from_numpy(found).to(x.device)

    @property
    def ceiling(self) -> float:
        r"""An upper bound on every eigenvalue of s T, rounding included: that the factor exists proves it.

        The factor R is exact for a matrix within
        :math:`\gamma_{b+2}\,\big\||R^*||R|\big\|_2 \le (2b+1)\,\gamma_{b+2}\,(\sigma - s\,t_0)` of the one
        given; the factor 4 covers complex arithmetic.

        References:
            Accuracy and Stability of Numerical Algorithms (Higham, 2002), Thm. 10.3.
        """
        b = len(self._factor) - 1
        return self._shift + 4 * (2 * b + 1) * (b + 2) * float(np.finfo(float).eps) * self._diagonal


def banded_extreme(
    operator: ToeplitzOperator,
    start: Inexact[Tensor, " n"],
    bracket: tuple[float, float],
    sign: float,
    goal: float,
) -> tuple[RitzValue, float]:
    r"""The greatest eigenvalue of s T, and the least upper bound on it that was proven.

    Lanczos runs on :math:`(\sigma I - sT)^{-1}`, σ just above the bracket, which spreads eigenvalues that
    crowd at the edge of the symbol: the eigenvalue μ sought stands for :math:`\sigma - 1/\mu`. A second
    factorisation, at a shift just above the value found, proves that no eigenvalue lies beyond; where it
    fails, the run has met a neighbour, and the bracket's end stays the bound.

    Args:
        operator: T, Hermitian, with up to `WIDEST` lags beside the diagonal, one at least.
        start: Where Lanczos starts, not zero.
        bracket: Bounds on the greatest eigenvalue of s T.
        sign: s, 1 or -1.
        goal: Aimed error of the value, positive, in the units of T.
    """
    floor, ceiling = bracket
    shift = ceiling + goal
    least = 1 / (shift - floor)  # what the eigenvalue of the inverse is at least
    band = ShiftedBand(operator, sign, shift)
    run = largest_ritz_value(band.solve, Start(start), goal * least**2, MOST_SOLVES)
    value = shift - 1 / run.value
    rest = max(run.value - run.residual_bound, 0.0)
    residual = 1 / rest - 1 / run.value if rest > 0 else np.inf
    found = replace(run, value=value, residual_bound=residual)
    try:
        return found, min(ceiling, ShiftedBand(operator, sign, value + 2 * goal).ceiling)
    except np.linalg.LinAlgError:
        return found, ceiling
