r"""Polynomials that approximate exp with the least relative error, with a certified bound on that error."""

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.polynomial import chebyshev

from spectrope.core import require

HIGHEST, WIDEST, FARTHEST, EXCHANGES, GRID = 16, 24.0, 100.0, 40, 8192
PIECES = 4  # Of an interval; the slope is bounded on each.


@dataclass(frozen=True)
class ExpPolynomial:
    r"""P with :math:`|P(x)e^{-x} - 1| \le \epsilon` on :math:`[a, b]`.

    Args:
        low: a, in logit units.
        high: b, in logit units.
        coefficients: :math:`a_0, \dots, a_g` of :math:`P(x)=\sum_m a_m x^m`.
        error_bound: A proven bound of the relative error on the interval, coefficients as they are stored.
    """

    low: float
    high: float
    coefficients: tuple[float, ...]
    error_bound: float

    @property
    def degree(self) -> int:
        """The degree g."""
        return len(self.coefficients) - 1

    @property
    def reach(self) -> float:
        """The largest modulus of a logit in the interval."""
        return max(abs(self.low), abs(self.high))

    def magnitude(self, norm: float) -> float:
        r""":math:`\sum_m |a_m| N^m`: no sum of moduli in computing P is larger.

        Args:
            norm: A bound of :math:`|q||k|`; N is that, or the interval's reach where it is larger.
        """
        largest, total = max(norm, self.reach), 0.0
        for coefficient in reversed(self.coefficients):
            total = total * largest + abs(coefficient)
        return total


@lru_cache(maxsize=4096)
def exp_polynomial(degree: int, low: float, high: float) -> ExpPolynomial:
    r"""The minimax polynomial of exp in relative error, by Remez exchange on :math:`r(x)=P(x)e^{-x}-1`.

    The functions :math:`x^m e^{-x}` are a Chebyshev system: the best P is the one whose r takes its largest
    modulus at g + 2 points with alternating signs. r is sampled in steps of h; between samples its slope is
    :math:`(P'-P)e^{-x}`, where P' - P is sampled as well and cannot change by more than
    :math:`\tfrac h2\cdot\tfrac{2}{b-a}\sum_k k^2|c_k|` in half a step, c being its Chebyshev coefficients.
    This is done on pieces of the interval, because P' - P is far smaller at its lower end. So the returned
    bound is a proof, not an estimate.

    Args:
        degree: g, from 1 to 16.
        low: a, in logit units, from -100.
        high: b, above a by at most 24, up to 100.

    Raises:
        ConfigError: If the degree or the interval is outside these.

    References:
        An Introduction to the Approximation of Functions (Rivlin, 1969), Sec. 1.3;
        Approximation Theory and Approximation Practice (Trefethen, 2013), Ch. 10.
    """
    _check(degree, low, high)
    power = _power(_exchange(degree, low, high), low, high)
    return ExpPolynomial(low, high, tuple(power.tolist()), _error_bound(power, low, high))


@dataclass(frozen=True)
class _Range:
    degree: int
    width: float
    end: float


def _check(degree: int, low: float, high: float) -> None:
    asked = _Range(degree, high - low, max(abs(low), abs(high)))
    require(1 <= degree <= HIGHEST, asked, "degree", f"from 1 to {HIGHEST}")
    require(0 < high - low <= WIDEST, asked, "width", f"positive and at most {WIDEST:g}")
    require(asked.end <= FARTHEST, asked, "end", f"at most {FARTHEST:g} from 0")


def _logits(t: np.ndarray, low: float, high: float) -> np.ndarray:
    """Logits of the points t in [-1, 1]."""
    return low + (high - low) * (t + 1) / 2


def _exchange(degree: int, low: float, high: float) -> np.ndarray:
    """Chebyshev series of the minimax polynomial; where rounding stops the exchange, the best one met."""
    grid = np.cos(np.linspace(np.pi, 0, GRID + 1))
    exact = np.exp(_logits(grid, low, high))
    points = np.cos(np.linspace(np.pi, 0, degree + 2))
    best, least = np.zeros(degree + 1), np.inf
    for _ in range(EXCHANGES):
        series, level = _levelled(points, degree, low, high)
        residual = chebyshev.chebval(grid, series) / exact - 1
        worst = np.abs(residual).max()
        if worst < least:
            best, least = series, worst
        peaks = _alternation(residual)
        if worst <= abs(level) * (1 + 1e-9) or len(peaks) < degree + 2:
            break
        points = grid[_strongest(peaks, residual, degree + 2)]
    return best


def _levelled(points: np.ndarray, degree: int, low: float, high: float) -> tuple[np.ndarray, float]:
    """Chebyshev series whose relative error has the same modulus and alternating signs at the points."""
    weight = np.exp(-_logits(points, low, high))
    signs = (-1.0) ** np.arange(degree + 2)
    system = np.column_stack([chebyshev.chebvander(points, degree) * weight[:, None], -signs])
    solved = np.linalg.solve(system, np.ones(degree + 2))
    return solved[:-1], float(solved[-1])


def _alternation(residual: np.ndarray) -> np.ndarray:
    """Indices where the residual is largest in modulus between its changes of sign."""
    changes = np.flatnonzero(np.diff(np.signbit(residual))) + 1
    pieces = np.split(np.arange(len(residual)), changes)
    return np.array([piece[np.abs(residual[piece]).argmax()] for piece in pieces])


def _strongest(peaks: np.ndarray, residual: np.ndarray, count: int) -> np.ndarray:
    """As many neighbouring peaks as are wanted, the weaker end dropped first."""
    while len(peaks) > count:
        first, last = np.abs(residual[peaks[[0, -1]]])
        peaks = peaks[1:] if first < last else peaks[:-1]
    return peaks


def _power(series: np.ndarray, low: float, high: float) -> np.ndarray:
    """Coefficients of powers of the logit."""
    in_t = np.polynomial.Polynomial(chebyshev.cheb2poly(series))
    centre, radius = (low + high) / 2, (high - low) / 2
    shifted = in_t(np.polynomial.Polynomial([-centre / radius, 1 / radius]))
    return np.pad(shifted.coef, (0, len(series) - len(shifted.coef)))


def _error_bound(power: np.ndarray, low: float, high: float) -> float:
    """A bound of the relative error: the largest of those of the pieces of the interval."""
    ends = np.linspace(low, high, PIECES + 1)
    return max(_bound_of_piece(power, *piece) for piece in pairwise(ends.tolist()))


def _bound_of_piece(power: np.ndarray, low: float, high: float) -> float:
    """The largest of: a sampled error, what half a step to each side can add, and the sample's rounding."""
    steps = GRID // PIECES
    x = np.linspace(low, high, steps + 1)
    residual = np.polynomial.polynomial.polyval(x, power) * np.exp(-x) - 1
    half = (high - low) / steps / 2
    polynomial = np.polynomial.Polynomial(power)
    slope = polynomial.deriv() - polynomial
    in_t = slope(np.polynomial.Polynomial([(low + high) / 2, (high - low) / 2]))
    series = np.abs(chebyshev.poly2cheb(in_t.coef))
    bend = 2 / (high - low) * (np.arange(len(series)) ** 2 * series).sum()
    missed = half * (np.abs(slope(x)) + half * bend) * np.exp(half - x)
    moduli = np.polynomial.polynomial.polyval(np.abs(x), np.abs(power))
    rounding = 4 * (len(power) + 1) * np.finfo(np.float64).eps * moduli * np.exp(-x)
    return float((np.abs(residual) + missed + rounding).max())
