"""Extreme eigenvalues of Hermitian Toeplitz matrices at a million rows, with certificates."""

import math
from dataclasses import dataclass, replace
from functools import partial

import torch
from jaxtyping import Float, Inexact
from torch import Tensor

from spectrope.spectral.banded import WIDEST, banded_extreme
from spectrope.spectral.checks import check
from spectrope.spectral.lanczos import RitzValue, best_ritz_value, best_starts
from spectrope.spectral.operator import ToeplitzOperator
from spectrope.spectral.symbol import OVERSAMPLING, SymbolRange, bracket, grids, require_hermitian

DENSE_ROWS = 128
PEAKS, MOST_PEAKS, TIE, TIED_ROWS = 2, 8, 0.003, 65_536
MOST_WORK = 400_000  # rows times products per run


@dataclass(frozen=True)
class Extreme:
    """One extreme eigenvalue, in the units of the entries.

    Args:
        value_estimate: The eigenvalue; Lanczos aims at `tolerance` and may, in principle, have met a
            neighbour.
        residual_bound: An eigenvalue lies within this distance of `value_estimate`, up to rounding.
        lower_bound: The extreme eigenvalue is not below this, up to rounding.
        upper_bound: The extreme eigenvalue is not above this, up to rounding.
        products: Matrix-vector products taken.
    """

    value_estimate: float
    residual_bound: float
    lower_bound: float
    upper_bound: float
    products: int

    @property
    def width_bound(self) -> float:
        """Width of the certificate, in the units of the entries."""
        return self.upper_bound - self.lower_bound


@dataclass(frozen=True)
class Extremes:
    """Both ends of a spectrum."""

    smallest: Extreme
    largest: Extreme


def extremal_eigenvalues(operator: ToeplitzOperator, tolerance: float = 1e-10) -> Extremes:
    r"""Both extreme eigenvalues of a Hermitian Toeplitz matrix in :math:`O(n\log n)` per product.

    Near the extremum :math:`\theta^*` of its symbol the matrix acts like a second derivative with zero
    boundary values, so its eigenvector is close to a modulated half wave
    :math:`\sin(\pi(j+1)/(n+1))\,e^{-ij\theta^*}`, and closer still to a slightly stretched one. Lanczos
    starts from the best mix of both (`trial_vectors`) at the leading peaks of the Fejér mean; a random start
    finds a wrong eigenvalue, or none. Real matrices commute with reversal, so symmetric and skew vectors are
    searched apart: their extremes nearly coincide. The bracket of `symbol_range` certifies what was found.
    Matrices of up to 32 lags beside the diagonal, whose eigenvalues crowd wherever such a symbol is flat, are
    inverted instead, and their bracket is as narrow as the error: see `banded_extreme`.

    Args:
        operator: Hermitian, n x n; up to 128 rows are solved densely.
        tolerance: Aimed error of both values, relative to the largest one in modulus; clustered extremes have
            missed it twentyfold.

    Raises:
        ConfigError: If the matrix is not Hermitian.

    References:
        Rayleigh quotients of banded Toeplitz matrices (Bogoya, Böttcher and Grudsky, 2013);
        Cantoni and Butler (1976), Thm. 1, on symmetric and skew eigenvectors.
    """
    require_hermitian(operator)
    truncated, smoothed = grids(operator, OVERSAMPLING)
    limits = bracket(operator, truncated, smoothed)
    if operator.n <= DENSE_ROWS:
        return _dense_extremes(operator, limits)
    goal = tolerance * max(abs(limits.min_bound), abs(limits.max_bound))
    search = _search_banded if 0 < operator.bandwidth <= WIDEST else _search
    top, above = search(operator, smoothed, (limits.max_bound, limits.upper_bound), 1.0, goal)
    bottom, below = search(operator, smoothed, (-limits.min_bound, -limits.lower_bound), -1.0, goal)
    limits = replace(limits, lower_bound=-below, upper_bound=above)
    return Extremes(_smallest(-bottom.value, bottom, limits), _largest(top.value, top, limits))


def condition_number_estimate(operator: ToeplitzOperator, tolerance: float = 1e-10) -> float:
    r"""The condition number :math:`\lambda_{\max}/\lambda_{\min}` of a positive definite Toeplitz matrix.

    It means something only there; for other matrices compare singular values.

    Raises:
        ConfigError: If the matrix is not Hermitian and positive definite beyond rounding.
    """
    ends = extremal_eigenvalues(operator, tolerance)
    low, high = ends.smallest.value_estimate, ends.largest.value_estimate
    floor = 64 * torch.finfo(torch.float64).eps * max(abs(low), abs(high))
    check(
        low > floor,
        f"operator must be positive definite for a condition number; its least eigenvalue is {low:.3g}.",
    )
    return high / low


def trial_vectors(n: int, theta: float, like: Tensor) -> tuple[Float[Tensor, "2 n"], Float[Tensor, "2 n"]]:
    r"""Symmetric and skew vectors close to the extreme eigenvectors of a real matrix, two of each.

    With :math:`x = j - (n-1)/2` and :math:`\kappa = \pi/(n+1)`: the half wave :math:`\cos\kappa x`, times
    :math:`\cos\theta x` or :math:`\sin\theta x`, and its stretch, the derivative by :math:`\log\kappa`, with
    which a mix fits the depth beyond the edge at which the eigenvector vanishes. Where one of the carriers is
    zero (θ = 0 or π) the full wave :math:`\sin 2\kappa x` on the other carrier takes its place.
    """
    x = torch.arange(n, dtype=torch.float64, device=like.device) - (n - 1) / 2
    phase, carrier = x * (math.pi / (n + 1)), x * theta
    half = torch.stack([phase.cos(), phase * phase.sin()])
    full = torch.stack([(2 * phase).sin(), phase * (2 * phase).cos()])
    even, odd = carrier.cos(), carrier.sin()
    size = math.sqrt(n) / 1000
    symmetric = half * even if even.norm() > size else full * odd
    skew = half * odd if odd.norm() > size else full * even
    return symmetric, skew


def complex_trial_vectors(n: int, theta: float, like: Tensor) -> Inexact[Tensor, "2 n"]:
    r"""The half wave and its stretch on the carrier :math:`e^{-i\theta x}`, for complex matrices."""
    x = torch.arange(n, dtype=torch.float64, device=like.device) - (n - 1) / 2
    phase = x * (math.pi / (n + 1))
    return torch.stack([phase.cos(), phase * phase.sin()]) * torch.exp(-1j * theta * x)


def mixed_wave(operator: ToeplitzOperator, angles: list[float]) -> Inexact[Tensor, " n"]:
    """A sum of half waves, with a tenth of a full one, at these angles: neither symmetric nor skew."""
    n, lags = operator.n, operator.lags
    x = torch.arange(n, dtype=torch.float64, device=lags.device) - (n - 1) / 2
    phase = x * (math.pi / (n + 1))
    carriers = torch.outer(torch.tensor(angles, dtype=x.dtype, device=x.device), x)
    waves = (carriers - math.pi / 4).cos() if operator.is_real else torch.exp(-1j * carriers)
    return (phase.cos() + 0.1 * (2 * phase).sin()) * waves.sum(0)


def _search_banded(
    operator: ToeplitzOperator, smoothed: Tensor, limits: tuple[float, float], sign: float, goal: float
) -> tuple[RitzValue, float]:
    """The largest eigenvalue of sign * operator, from waves at all peaks, and an upper bound on it."""
    start = mixed_wave(operator, _peaks(operator, sign * smoothed))
    return banded_extreme(operator, start, limits, sign, goal)


def _search(
    operator: ToeplitzOperator, smoothed: Tensor, limits: tuple[float, float], sign: float, goal: float
) -> tuple[RitzValue, float]:
    """The best of the Lanczos runs, one per class of trial vectors, for the largest of sign * operator."""
    _, ceiling = limits
    most = min(max(MOST_WORK // operator.n, 40), 1000)
    angles = _peaks(operator, sign * smoothed)

    apply = partial(_apply_by_class, operator, sign)
    starts = best_starts(apply, _trials(operator, angles), ceiling)
    return best_ritz_value(apply, starts, goal, most), ceiling


def _apply_by_class(
    operator: ToeplitzOperator, sign: float, x: Inexact[Tensor, "c *m n"]
) -> Inexact[Tensor, "c *m n"]:
    """sign T x; for a real T one product of the sum of both classes, which it maps to themselves."""
    if not operator.is_real:
        return operator.apply(x).mul_(sign)
    image = operator.apply(x[0] + x[1]).mul_(sign / 2)
    mirrored = image.flip(-1)
    return torch.stack([image + mirrored, image - mirrored])


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


def _trials(operator: ToeplitzOperator, angles: list[float]) -> Inexact[Tensor, "c m n"]:
    """Trial vectors of each class: symmetric and skew ones for real matrices, one class for complex ones."""
    if operator.is_real:
        pairs = [trial_vectors(operator.n, theta, operator.lags) for theta in angles]
        return torch.stack([torch.cat(vectors) for vectors in zip(*pairs, strict=True)])
    return torch.cat([complex_trial_vectors(operator.n, theta, operator.lags) for theta in angles])[None]


def _dense_extremes(operator: ToeplitzOperator, limits: SymbolRange) -> Extremes:
    values = torch.linalg.eigvalsh(operator.dense())
    rounding = operator.n * torch.finfo(torch.float64).eps * values.abs().amax().item()
    low, high = (RitzValue(value.item(), rounding, 0) for value in (values[0], values[-1]))
    return Extremes(_smallest(low.value, low, limits), _largest(high.value, high, limits))


def _smallest(value: float, run: RitzValue, limits: SymbolRange) -> Extreme:
    upper = min(value, limits.min_bound)
    return Extreme(value, run.residual_bound, limits.lower_bound, upper, run.products)


def _largest(value: float, run: RitzValue, limits: SymbolRange) -> Extreme:
    lower = max(value, limits.max_bound)
    return Extreme(value, run.residual_bound, lower, limits.upper_bound, run.products)
