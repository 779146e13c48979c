"""Extreme eigenvalues of Toeplitz matrices: closed forms, dense solvers, certificates."""

import math
from itertools import pairwise

import numpy as np
import pytest
import scipy.optimize
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from spectrope.core.errors import ConfigError
from spectrope.spectral import ToeplitzOperator, extremal_eigenvalues
from spectrope.spectral.lanczos import LanczosStart, best_ritz_value


def kms_eigenvalues(rho, n):
    """All eigenvalues of rho^|i-j|, decreasing: one root in each interval between multiples of pi/(n+1)."""
    secular = lambda t: math.sin((n + 1) * t) - 2 * rho * math.sin(n * t) + rho**2 * math.sin((n - 1) * t)  # noqa: E731
    ends = [math.pi * k / (n + 1) for k in range(n + 1)]
    roots = [scipy.optimize.brentq(secular, a + 1e-13, b - 1e-13, xtol=1e-15) for a, b in pairwise(ends)]
    return (1 - rho**2) / (1 - 2 * rho * np.cos(roots) + rho**2)


def kms(rho, n):
    return ToeplitzOperator.of(lambda d: rho ** d.abs(), n)


def agree(found, values, tolerance=1e-9):
    scale = max(abs(values.min()), abs(values.max()))
    assert abs(found.smallest.value_estimate - values.min()) <= tolerance * scale
    assert abs(found.largest.value_estimate - values.max()) <= tolerance * scale


@pytest.mark.parametrize("rho", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("n", [2, 63, 200, 1009])
def test_kac_murdock_and_szego(rho, n):
    values = kms_eigenvalues(rho, n)
    agree(extremal_eigenvalues(kms(rho, n)), values)
    assert np.log(values).sum() == pytest.approx((n - 1) * math.log(1 - rho**2), rel=1e-9)
    if n <= 63:
        dense = torch.linalg.eigvalsh(kms(rho, n).dense()).flip(0)
        np.testing.assert_allclose(dense.numpy(), values, atol=1e-12)


@pytest.mark.parametrize("n", [1, 2, 63, 500])
def test_tridiagonal_matrices(n):
    t = torch.tensor([2.0, -0.7 + 0.3j, *[0] * (n - 1)], dtype=torch.complex128)[:n]
    t[0] = 2
    found = extremal_eigenvalues(ToeplitzOperator.hermitian(t))
    width = 2 * abs(-0.7 + 0.3j) * math.cos(math.pi / (n + 1)) if n > 1 else 0.0
    agree(found, np.array([2 - width, 2 + width]))


@pytest.mark.parametrize("n", [1, 63, 300])
def test_all_ones_and_a_cosine(n):
    agree(extremal_eigenvalues(ToeplitzOperator(torch.ones(2 * n - 1))), np.array([0.0 if n > 1 else 1.0, n]))
    theta = 0.3
    side = abs(math.sin(n * theta) / math.sin(theta))
    ends = np.array([0.0 if n > 1 else 1.0, (n + side) / 2])
    agree(extremal_eigenvalues(ToeplitzOperator.of(lambda d: (theta * d).cos(), n)), ends)


@pytest.mark.parametrize("n", [2, 63, 64, 400])
def test_the_distance_matrix(n):
    """|i - j|: antisymmetric eigenvalues -csc^2((2k-1) pi / 2n) / 2, determinant (-1)^(n-1) (n-1) 2^(n-2)."""
    operator = ToeplitzOperator.of(torch.abs, n)
    values = torch.linalg.eigvalsh(operator.dense()).numpy()
    k = np.arange(1, n // 2 + 1)
    skew = -0.5 / np.sin((2 * k - 1) * math.pi / (2 * n)) ** 2
    assert max(abs(values - s).min() for s in skew) < 1e-9 * n**2
    if n <= 64:
        sign, size = torch.linalg.slogdet(operator.dense())
        assert sign.item() == (-1) ** (n - 1)
        assert size.item() == pytest.approx(math.log(n - 1) + (n - 2) * math.log(2))
    agree(extremal_eigenvalues(operator), values)


@pytest.mark.parametrize("width", [16, 700])
def test_fejers_kernel_whose_least_eigenvalues_crowd_near_zero(width):
    operator = ToeplitzOperator.hermitian((1 - torch.arange(700, dtype=torch.float64) / width).clamp(min=0))
    agree(extremal_eigenvalues(operator), torch.linalg.eigvalsh(operator.dense()).numpy())


@pytest.mark.parametrize("n", [257, 500])
@pytest.mark.parametrize("is_complex", [False, True])
def test_random_bands_against_the_dense_solver(n, is_complex):
    rng = torch.Generator().manual_seed(n)
    t = torch.zeros(n, dtype=torch.complex128 if is_complex else torch.float64)
    t[:32] = torch.randn(32, generator=rng, dtype=t.dtype)
    t[0] = t[0].real.item()
    operator = ToeplitzOperator.hermitian(t)
    values, found = torch.linalg.eigvalsh(operator.dense()).numpy(), extremal_eigenvalues(operator)
    agree(found, values)
    for end, value in ((found.smallest, values[0]), (found.largest, values[-1])):
        assert end.lower_bound - 1e-12 <= value <= end.upper_bound + 1e-12
        assert abs(values - end.value_estimate).min() <= end.residual_bound + 1e-12


@settings(max_examples=25)
@given(
    n=st.sampled_from([1, 2, 63, 127, 257, 263, 400, 401]),
    seed=st.integers(0, 2**32 - 1),
    is_complex=st.booleans(),
    decay=st.sampled_from([5.0, 50.0, 1e9]),
    wave=st.sampled_from([0.0, 4.0]),
)
def test_random_matrices_against_the_dense_solver(n, seed, is_complex, decay, wave):
    rng = torch.Generator().manual_seed(seed)
    t = torch.randn(n, generator=rng, dtype=torch.complex128 if is_complex else torch.float64)
    d = torch.arange(n, dtype=torch.float64)
    t = t * torch.exp(-d / decay) + wave * (0.7 * d).cos()
    t[0] = t[0].real.item()
    operator = ToeplitzOperator.hermitian(t)
    values, found = torch.linalg.eigvalsh(operator.dense()).numpy(), extremal_eigenvalues(operator)
    agree(found, values, 1e-8)
    slack = 1e-10 * abs(values).max()
    for end, value in ((found.smallest, values[0]), (found.largest, values[-1])):
        assert end.lower_bound - slack <= value <= end.upper_bound + slack
        assert abs(values - end.value_estimate).min() <= end.residual_bound + slack


def test_a_million_rows_of_kms_are_certified_to_nine_digits():
    found = extremal_eigenvalues(kms(0.5, 1_000_000))
    assert found.largest.value_estimate == pytest.approx(3, rel=1e-9)
    assert found.smallest.value_estimate == pytest.approx(1 / 3, rel=1e-9)
    for end in (found.largest, found.smallest):
        assert end.upper_bound - end.lower_bound < 1e-9


def test_a_matrix_without_extremes_is_sent_to_its_hermitian_part():
    causal = ToeplitzOperator.causal(torch.ones(5))
    with pytest.raises(ConfigError, match=r"Take its hermitian_part\(\)"):
        extremal_eigenvalues(causal)
    assert extremal_eigenvalues(causal.hermitian_part()).largest.value_estimate == pytest.approx(3)


def test_zero_and_huge_and_tiny_matrices():
    zero = extremal_eigenvalues(ToeplitzOperator(torch.zeros(401)))
    assert zero.largest.value_estimate == zero.smallest.value_estimate == 0
    for scale in (1e60, 1e-60):
        found = extremal_eigenvalues(ToeplitzOperator(kms(0.5, 300).lags * scale))
        agree(found, kms_eigenvalues(0.5, 300) * scale)


@pytest.mark.parametrize("order", [1, -1])
def test_lanczos_takes_the_best_of_runs_in_step_and_leaves_others_behind(order):
    operators = [kms(0.9, 300), kms(0.999, 300)][::order]
    rng = torch.Generator().manual_seed(0)
    starts = [LanczosStart(torch.randn(300, generator=rng, dtype=torch.float64)) for _ in operators]
    products = []

    def apply(rows):
        assert rows.isfinite().all()
        products.append(1)
        return torch.stack([t.apply(row) for t, row in zip(operators, rows, strict=True)])

    together = best_ritz_value(apply, starts, 1e-9, 200).value
    counts = [len(products)]
    for operator, start in zip(operators, starts, strict=True):
        products.clear()
        found = best_ritz_value(lambda x: apply_one(operator, x, products), [start], 1e-9, 200)  # noqa: B023
        counts.append(len(products))
        if operator is operators[0 if order < 0 else 1]:
            assert together == pytest.approx(found.value, rel=1e-12)
    assert counts[0] < max(counts[1:])


def apply_one(operator, rows, products):
    products.append(1)
    return operator.apply(rows)


def test_lanczos_says_when_it_did_not_converge():
    operator = kms(0.9, 500)
    start = LanczosStart(torch.ones(500, dtype=torch.float64))
    run = best_ritz_value(operator.apply, [start], tolerance=0.0, max_products=3)
    assert run.residual_bound > 1e-6
    with pytest.raises(ConfigError, match="must not vanish"):
        best_ritz_value(operator.apply, [LanczosStart(torch.zeros(500))], tolerance=1e-8, max_products=3)
