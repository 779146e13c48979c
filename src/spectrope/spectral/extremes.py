"""Extreme eigenvalues of Hermitian Toeplitz matrices, with certificates."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Inexact
from torch import Tensor

from spectrope.spectral.lanczos import RitzValue, best_ritz_value, best_starts
from spectrope.spectral.operator import ToeplitzOperator
from spectrope.spectral.symbol import SymbolRange, bracket, grids, require_hermitian

DENSE_ROWS = 256
PEAKS, MOST_PEAKS, TIE, TIED_ROWS = 2, 8, 0.003, 65_536
MOST_WORK = 400_000  # rows times products per run


@dataclass(frozen=True)
class Extreme:
    """One extreme eigenvalue, in the units of the entries.

    Args:
        value_estimate: The eigenvalue, computed to about `tolerance`. In principle, the Lanczos method may
            have converged to a neighbouring one.
        residual_bound: Some eigenvalue lies within this distance of `value_estimate`, up to rounding.
        lower_bound: Lower bound of the extreme eigenvalue, up to rounding.
        upper_bound: Upper bound of the extreme eigenvalue, up to rounding.
    """

    value_estimate: float
    residual_bound: float
    lower_bound: float
    upper_bound: float


@dataclass(frozen=True)
class Extremes:
    """Both ends of a spectrum.

    Args:
        smallest: The least eigenvalue.
        largest: The greatest.
        symbol: Bounds of both from the symbol.
    """

    smallest: Extreme
    largest: Extreme
    symbol: SymbolRange


def extremal_eigenvalues(operator: ToeplitzOperator, tolerance: float = 1e-10) -> Extremes:
    r"""Both extreme eigenvalues of a Hermitian Toeplitz matrix in :math:`O(n\log n)` per product.

    Used by `spectrope spectrum --encoding NAME --length N`, for up to a million positions, and for the table
    "extremes" of `spectrope spectrum RUN`; both print the values with their bounds.

    Near the extremum :math:`\theta^*` of its symbol the matrix acts like a second derivative with zero
    boundary values, so its eigenvector is close to a modulated half wave
    :math:`\sin(\pi(j+1)/(n+1))\,e^{-ij\theta^*}`, and closer still to a slightly stretched one. Lanczos
    starts from the best combination of both at the leading peaks of the Fejér mean; from a random start it
    converges to a wrong eigenvalue, or not at all. Real matrices commute with reversal, so symmetric and skew
    vectors are searched separately: their extremes nearly coincide. The bounds of `symbol_range` certify the
    result.

    >>> ends = extremal_eigenvalues(ToeplitzOperator.of(lambda lag: 0.9 ** lag.abs(), 20_000))
    >>> ends.largest.lower_bound <= ends.largest.value_estimate <= ends.largest.upper_bound
    True

    Args:
        operator: Hermitian, n x n; up to 256 rows are solved densely.
        tolerance: Target error of both values, relative to the larger modulus. For clustered extremes, errors
            up to twenty times as large have been observed.

    Raises:
        ConfigError: If the matrix is not Hermitian.

    References:
        Rayleigh quotients of banded Toeplitz matrices (Bogoya, Böttcher and Grudsky, 2013);
        Cantoni and Butler (1976), Thm. 1, on symmetric and skew eigenvectors.
    """
    require_hermitian(operator)
    truncated, smoothed = grids(operator)
    limits = bracket(operator, truncated, smoothed)
    if operator.n <= DENSE_ROWS:
        values = torch.linalg.eigvalsh(operator.dense())
        rounding = operator.n * torch.finfo(torch.float64).eps * values.abs().amax().item()
        bottom, top = (RitzValue(value.item(), rounding) for value in (-values[0], values[-1]))
    else:
        goal = tolerance * max(abs(limits.min_bound), abs(limits.max_bound))
        bottom = _largest(operator, -1.0, -smoothed, -limits.lower_bound, goal)
        top = _largest(operator, 1.0, smoothed, limits.upper_bound, goal)
    low, high = -bottom.value, top.value
    return Extremes(
        Extreme(low, bottom.residual_bound, limits.lower_bound, min(low, limits.min_bound)),
        Extreme(high, top.residual_bound, max(high, limits.max_bound), limits.upper_bound),
        limits,
    )


def _largest(
    operator: ToeplitzOperator, sign: float, smoothed: Tensor, ceiling: float, goal: float
) -> RitzValue:
    """The largest eigenvalue of sign * operator: the best of one Lanczos run per class of trial vectors."""

    def apply(x: Inexact[Tensor, "c *m n"]) -> Inexact[Tensor, "c *m n"]:
        if not operator.is_real:
            return operator.apply(x).mul_(sign)
        both = x[0] + x[1]  # One product serves both classes, which the operator keeps apart.
        image = operator.apply(both).mul_(sign / 2)
        mirrored = image.flip(-1)
        return torch.stack([image + mirrored, image - mirrored])

    most = min(max(MOST_WORK // operator.n, 40), 1000)
    trials = _trial_vectors(operator, _peaks(operator, smoothed))
    return best_ritz_value(apply, best_starts(apply, trials, ceiling), goal, most)


def _peaks(operator: ToeplitzOperator, smoothed: Tensor) -> list[float]:
    """Angles of the two highest local maxima of a symbol on its grid, and of up to six that all but tie."""
    points = 2 * (len(smoothed) - 1) if operator.is_real else len(smoothed)
    ends = smoothed[[1, -2]] if operator.is_real else smoothed[[-1, 0]]
    around = torch.cat([ends[:1], smoothed, ends[1:]])
    left, right = around[:-2], around[2:]
    places = ((smoothed >= left) & (smoothed >= right)).nonzero()[:, 0]
    most = MOST_PEAKS if operator.n <= TIED_ROWS else PEAKS  # beyond, ties differ by less than the goal
    heights, order = smoothed[places].topk(min(most, len(places)))
    tied = heights >= heights[0] - TIE * (heights[0] - smoothed.mean())
    best = places[order[: max(PEAKS, int(tied.sum()))]]
    slope, bend = right[best] - left[best], 2 * smoothed[best] - left[best] - right[best]
    shift = torch.where(bend > 0, slope / (2 * bend), 0.0)
    return ((best + shift) * (2 * math.pi / points)).tolist()


def _trial_vectors(operator: ToeplitzOperator, angles: list[float]) -> Inexact[Tensor, "c m n"]:
    r"""Vectors close to the extreme eigenvectors: symmetric and skew ones apart for a real matrix.

    With :math:`x = j - (n-1)/2` and :math:`\kappa = \pi/(n+1)`: the half wave :math:`\cos\kappa x` and its
    stretch, the derivative by :math:`\log\kappa`, with which a mix fits the depth beyond the edge at which
    the eigenvector vanishes; both times the carrier :math:`e^{-i\theta x}`, or :math:`\cos\theta x` or
    :math:`\sin\theta x`. Where one of these is zero (θ = 0 or π) the full wave :math:`\sin 2\kappa x` on the
    other carrier takes its place.
    """
    n, device = operator.n, operator.lags.device
    x = torch.arange(n, dtype=torch.float64, device=device) - (n - 1) / 2
    phase = x * (math.pi / (n + 1))
    half = torch.stack([phase.cos(), phase * phase.sin()])
    if not operator.is_real:
        return torch.cat([half * torch.exp(-1j * theta * x) for theta in angles])[None]
    full = torch.stack([(2 * phase).sin(), phase * (2 * phase).cos()])
    symmetric, skew = zip(*(_by_symmetry(half, full, x * theta) for theta in angles), strict=True)
    return torch.stack([torch.cat(symmetric), torch.cat(skew)])


def _by_symmetry(
    half: Float[Tensor, "2 n"], full: Float[Tensor, "2 n"], carrier: Float[Tensor, " n"]
) -> tuple[Float[Tensor, "2 n"], Float[Tensor, "2 n"]]:
    even, odd = carrier.cos(), carrier.sin()
    size = math.sqrt(len(carrier)) / 1000
    return half * even if even.norm() > size else full * odd, half * odd if odd.norm() > size else full * even
