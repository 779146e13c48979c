"""Toeplitz systems by Levinson's recursion, with the residual checked."""

import math

import numpy as np
import scipy.linalg
import torch
from torch import Tensor

from spectrope.core.errors import UnsupportedError
from spectrope.spectral.checks import check, wide
from spectrope.spectral.operator import ToeplitzOperator

TOLERANCE = 1e-8


def toeplitz_solve(operator: ToeplitzOperator, rhs: Tensor) -> Tensor:
    r"""Solve T x = b in :math:`O(n^2)` time and O(n) memory per column, by SciPy's Levinson recursion.

    Levinson and Durbin's recursion solves with a Toeplitz matrix; it does not extract one from logits, which
    `nearest_toeplitz` does. It is stable for positive definite matrices; for others it may break down on a
    singular leading block or lose all digits, so the residual is verified by a product.

    Args:
        operator: n x n.
        rhs: b, with shape (n,) or (n, c).

    Returns:
        x with the shape of b.

    Raises:
        ConfigError: If the shapes do not fit.
        UnsupportedError: If the recursion breaks down or leaves a residual beyond 1e-8 of b.

    References:
        Matrix Computations (Golub and Van Loan, 2013), Sec. 4.7.
    """
    check(
        rhs.ndim in (1, 2) and len(rhs) == operator.n,
        f"rhs must have {operator.n} rows; got {tuple(rhs.shape)}.",
    )
    b = wide(rhs, "rhs")
    lags = operator.lags.cpu().numpy()
    try:
        x = scipy.linalg.solve_toeplitz((lags[operator.n - 1 :], lags[operator.n - 1 :: -1]), b.cpu().numpy())
    except np.linalg.LinAlgError:
        raise UnsupportedError("Levinson's recursion met a singular leading block; solve densely.") from None
    solution = torch.from_numpy(np.asarray(x)).to(b.device)
    found = bool(solution.isfinite().all())
    error = torch.linalg.norm(operator @ solution - b).item() if found else math.inf
    if not error <= TOLERANCE * torch.linalg.norm(b).item():
        raise UnsupportedError(
            f"Levinson's recursion lost its digits (residual {error:.3g}): the matrix is not positive "
            "definite, or nearly singular. Solve densely."
        )
    return solution
