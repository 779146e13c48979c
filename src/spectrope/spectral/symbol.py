"""Certified ranges of symbols: what a finite grid of angles proves about all angles."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from spectrope.spectral.checks import check
from spectrope.spectral.fourier import fast_length
from spectrope.spectral.operator import ToeplitzOperator

OVERSAMPLING = 8  # Grid points per row.


@dataclass(frozen=True)
class SymbolRange:
    """A two-sided bracket around both extreme eigenvalues of a Hermitian Toeplitz matrix, in its units.

    `lower_bound <= lambda_min <= min_bound` and `max_bound <= lambda_max <= upper_bound`, up to rounding.

    Args:
        lower_bound: Below the truncated symbol everywhere.
        min_bound: Least value of the Fejér-smoothed symbol on the grid.
        max_bound: Greatest value of the Fejér-smoothed symbol on the grid.
        upper_bound: Above the truncated symbol everywhere.
    """

    lower_bound: float
    min_bound: float
    max_bound: float
    upper_bound: float


def symbol_range(operator: ToeplitzOperator) -> SymbolRange:
    r"""Bracket both ends of the spectrum of a Hermitian Toeplitz matrix in :math:`O(n \log n)`.

    Eigenvalues lie in :math:`[\min f_n, \max f_n]` of the truncated symbol, and Rayleigh quotients at plane
    waves, which are the Fejér means, lie between the extreme ones. See `grid_excess_bound` for what the grid
    may miss of :math:`f_n`.

    >>> decay = ToeplitzOperator.of(lambda lag: 0.5 ** lag.abs(), 2000)
    >>> found = symbol_range(decay)
    >>> f"{found.lower_bound:.5f} {found.upper_bound:.5f}"  # of 1/3 and 3
    '0.33333 3.00000'

    Args:
        operator: Hermitian, n x n.

    Raises:
        ConfigError: If the matrix is not Hermitian.
    """
    require_hermitian(operator)
    return bracket(operator, *grids(operator))


def grids(operator: ToeplitzOperator) -> tuple[Tensor, Tensor]:
    """The truncated and the Fejér-smoothed symbol of a Hermitian matrix on one grid."""
    points = fast_length(OVERSAMPLING * operator.n)
    return operator.symbol_on_grid(points), operator.fejer().symbol_on_grid(points)


def bracket(operator: ToeplitzOperator, truncated: Tensor, smoothed: Tensor) -> SymbolRange:
    """The bracket from both symbols on a grid."""
    points = 2 * (len(truncated) - 1) if operator.is_real else len(truncated)
    low, high = (value.item() for value in truncated.aminmax())
    excess = grid_excess_bound(operator, points, (high - low) / 2)
    least, greatest = (value.item() for value in smoothed.aminmax())
    return SymbolRange(low - excess, least, greatest, high + excess)


def grid_excess_bound(operator: ToeplitzOperator, points: int, half_width: float) -> float:
    r"""How far a Hermitian symbol can leave its range on M equispaced angles, whatever it does in between.

    The least of two proven bounds: Ehlich and Zeller's, :math:`w\,(1/\cos(\pi b/M) - 1)` with b the largest
    lag and w half the width on the grid; and Taylor's, :math:`\tfrac12 (\pi/M)^2 \sum_d d^2 |t_d|`, since an
    interior extremum lies within :math:`\pi/M` of a grid point and has no slope. The second wins when lags
    decay.

    Args:
        operator: Hermitian, n x n.
        points: M, more than 2 (n - 1).
        half_width: w, in the units of the entries.

    References:
        Schwankung von Polynomen zwischen Gitterpunkten (Ehlich and Zeller, 1964).
    """
    n, b = operator.n, operator.bandwidth
    d = torch.arange(n, dtype=torch.float64, device=operator.lags.device)
    curvature = 2 * (d**2 * operator.lags[n - 1 :].abs()).sum().item()
    taylor = 0.5 * (math.pi / points) ** 2 * curvature
    return min(half_width * (1 / math.cos(math.pi * b / points) - 1), taylor)


def require_hermitian(operator: ToeplitzOperator) -> None:
    """Refuse a matrix that is not Hermitian, and name the ways out."""
    check(
        operator.is_hermitian,
        "operator must be Hermitian to have extreme eigenvalues; got one that is not. "
        "Take its hermitian_part(), or its singular values.",
    )
