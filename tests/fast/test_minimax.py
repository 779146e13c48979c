"""The polynomial of exp: against linear programming, many digits, and the laws of best approximation."""

import math
from itertools import pairwise

import mpmath
import numpy as np
import pytest
from scipy.optimize import linprog

from spectrope.core.errors import ConfigError
from spectrope.fast.minimax import exp_polynomial

INTERVALS = [(-0.01, 0.01), (-0.5, 0.5), (-2.0, 2.0), (-1.0, 3.0), (-4.0, 4.0), (-8.0, 0.0)]


def relative_error(polynomial, x):
    return np.polynomial.polynomial.polyval(x, polynomial.coefficients) * np.exp(-x) - 1


@pytest.mark.parametrize("norm", [0.0, 2.0, 3.5])
def test_the_magnitude_is_the_sum_of_moduli_at_the_farther_end(norm):
    polynomial = exp_polynomial(3, -2.0, 1.0)
    moduli = sum(abs(a) * max(norm, 2.0) ** m for m, a in enumerate(polynomial.coefficients))
    assert polynomial.magnitude(norm) == pytest.approx(moduli, rel=1e-12)
    assert polynomial.magnitude(1e300) == math.inf


@pytest.mark.parametrize(("low", "high"), INTERVALS)
@pytest.mark.parametrize("degree", [1, 2, 3, 5])
def test_linear_programming_finds_no_better_one(degree, low, high):
    t = np.cos(np.linspace(np.pi, 0, 600))
    x = low + (high - low) * (t + 1) / 2
    powers = np.polynomial.chebyshev.chebvander(t, degree) * np.exp(-x)[:, None]
    ones = np.ones((len(x), 1))
    rows = np.block([[powers, -ones], [-powers, -ones]])
    sides = np.concatenate([np.ones(len(x)), -np.ones(len(x))])
    free = [(None, None)] * (degree + 1) + [(0, None)]
    scale = exp_polynomial(degree, low, high).error_bound
    best = linprog(np.eye(degree + 2)[-1], rows, sides, bounds=free, method="highs").fun
    assert scale == pytest.approx(best, rel=0.02, abs=1e-7)
    assert scale >= best - 1e-7


@pytest.mark.sampled
@pytest.mark.parametrize(("low", "high"), INTERVALS)
@pytest.mark.parametrize("degree", range(1, 13))
def test_the_bound_holds_at_points_between_samples_with_many_digits(degree, low, high):
    polynomial = exp_polynomial(degree, low, high)
    draws = np.random.default_rng(degree).uniform(low, high, 50)
    with mpmath.workdps(40):
        coefficients = [mpmath.mpf(c) for c in reversed(polynomial.coefficients)]
        worst = max(abs(mpmath.polyval(coefficients, x) * mpmath.exp(-x) - 1) for x in map(mpmath.mpf, draws))
    assert worst <= polynomial.error_bound


@pytest.mark.parametrize(("low", "high"), INTERVALS[1:])
@pytest.mark.parametrize("degree", [1, 2, 3, 4])
def test_the_error_alternates_at_degree_plus_two_points(degree, low, high):
    polynomial = exp_polynomial(degree, low, high)
    x = np.linspace(low, high, 20_001)
    error = relative_error(polynomial, x)
    pieces = np.split(error, np.flatnonzero(np.diff(np.signbit(error))) + 1)
    assert len(pieces) == degree + 2
    peaks = [np.abs(piece).max() for piece in pieces]
    assert min(peaks) == pytest.approx(max(peaks), rel=1e-4)
    assert polynomial.error_bound == pytest.approx(max(peaks), rel=0.05)


@pytest.mark.parametrize(("low", "high"), INTERVALS)
def test_higher_degrees_are_no_worse_until_rounding(low, high):
    errors = [exp_polynomial(degree, low, high).error_bound for degree in range(1, 13)]
    assert all(later < earlier or later < 1e-12 for earlier, later in pairwise(errors) if earlier < 0.5)


@pytest.mark.parametrize(("degree", "reach"), [(10, 6.0), (12, 8.0), (16, 11.0)])
def test_the_bound_is_close_to_the_error_on_wide_intervals(degree, reach):
    polynomial = exp_polynomial(degree, -reach, reach)
    worst = np.abs(relative_error(polynomial, np.linspace(-reach, reach, 100_001))).max()
    assert worst <= polynomial.error_bound <= 1.2 * worst


def test_the_straight_line_has_its_closed_form():
    """r has one inner extremum, where P' = P; equal moduli at both ends and there give the line."""
    polynomial = exp_polynomial(1, -1.0, 1.0)
    with mpmath.workdps(30):
        peak = mpmath.tanh(1)  # e^x_0 of slope/height: equal ends give height/slope = coth 1
        ends = [(1 / peak + x) * mpmath.exp(-x) for x in (-1, 1)]
        inner = mpmath.exp(-(1 - 1 / peak))
        error = (inner - ends[1]) / (inner + ends[1])
    assert abs(ends[0] - ends[1]) < 1e-12
    assert polynomial.error_bound == pytest.approx(float(error), rel=1e-3)


def test_a_wrong_coefficient_breaks_the_bound():
    """The guard of the certificate: a polynomial that is off by a third of its error is found out."""
    polynomial = exp_polynomial(3, -1.0, 1.0)
    x = np.linspace(-1, 1, 999)
    wrong = np.array(polynomial.coefficients) * (1 + polynomial.error_bound / 3)
    off = np.abs(np.polynomial.polynomial.polyval(x, wrong) * np.exp(-x) - 1).max()
    assert off > polynomial.error_bound


@pytest.mark.parametrize(
    ("degree", "high", "message"),
    [
        (0, 1.0, "degree must be from 1"),
        (17, 1.0, "degree must be"),
        (2, -1.0, "width must be"),
        (2, 30.0, "width"),
    ],
)
def test_what_is_out_of_range_is_refused(degree, high, message):
    with pytest.raises(ConfigError, match=message):
        exp_polynomial(degree, -1.0, high)


@pytest.mark.parametrize(("low", "high"), [(800.0, 801.0), (-720.0, -719.0)])
def test_intervals_whose_exponentials_leave_float64_are_refused(low, high):
    with pytest.raises(ConfigError, match="end must be at most 100 from 0"):
        exp_polynomial(3, low, high)
