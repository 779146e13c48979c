"""The RoPE kernel's spectrum, and the distance of spectra from symbols."""

import functools
import math

import pytest
import scipy.special
import torch
from hypothesis import given
from hypothesis import strategies as st

from spectrope.core.errors import ConfigError, UnsupportedError
from spectrope.spectral import (
    ToeplitzOperator,
    eigenvalue_match,
    fitted_rate,
    rope_kernel,
    rope_kernel_eigenvalues,
    singular_value_match,
)
from spectrope.spectral.szego import tail_share


def geometric(m, base=10000.0):
    return base ** (-torch.arange(m, dtype=torch.float64) / m)


def kms(rho, n):
    return ToeplitzOperator.of(lambda d: rho ** d.abs(), n)


def kms_symbol(rho, theta):
    return (1 - rho**2) / (1 - 2 * rho * theta.cos() + rho**2)


@given(n=st.sampled_from([1, 2, 5, 63, 97]), m=st.integers(1, 9), seed=st.integers(0, 2**32 - 1))
def test_the_small_gram_has_the_kernels_eigenvalues(n, m, seed):
    theta = 3 * torch.rand(m, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    kernel = rope_kernel(theta, n)
    expected = torch.linalg.eigvalsh(kernel.dense()).flip(0)
    found = rope_kernel_eigenvalues(theta, n)
    assert len(found) == min(2 * m, n)
    torch.testing.assert_close(found, expected[: len(found)], atol=1e-11 * n, rtol=0)
    assert not (expected[len(found) :].abs() > 1e-11 * n).any()
    assert found.sum().item() == pytest.approx(n)


@pytest.mark.parametrize("n", [2, 63, 10_007])
def test_one_frequency_has_two_eigenvalues(n):
    theta = 0.37
    side = abs(math.sin(n * theta) / math.sin(theta))
    expected = torch.tensor([(n + side) / 2, (n - side) / 2], dtype=torch.float64)
    torch.testing.assert_close(
        rope_kernel_eigenvalues(torch.tensor([theta], dtype=torch.float64), n), expected
    )


@pytest.mark.parametrize("m", [16, 40])
def test_linear_frequencies_give_dirichlets_kernel_and_all_of_them_the_identity(m):
    n, period = 40, 40
    theta = 2 * math.pi * torch.arange(m, dtype=torch.float64) / period
    column = rope_kernel(theta, n).lags[n - 1 :]
    d = torch.arange(1, n, dtype=torch.float64)
    closed = torch.sin(math.pi * d * (2 * m - 1) / period) / torch.sin(math.pi * d / period)  # 2 C m - 1
    torch.testing.assert_close(2 * m * column[1:] - 1, closed, atol=1e-10, rtol=0)
    if m == period:
        torch.testing.assert_close(column[1:], torch.zeros(n - 1, dtype=torch.float64), atol=1e-12, rtol=0)


@pytest.mark.parametrize(("m", "largest"), [(64, 0.18), (1024, 0.028)])
def test_geometric_frequencies_approach_a_difference_of_cosine_integrals(m, largest):
    lag = torch.arange(1, 4097, dtype=torch.float64)
    far, near = (torch.from_numpy(scipy.special.sici(x.numpy())[1]) for x in (lag, lag / 10000))
    error = (rope_kernel(geometric(m), 4097).lags[4097:] - (far - near) / math.log(10000)).abs().max().item()
    assert error == pytest.approx(largest, rel=0.05)


@pytest.mark.parametrize(("rho", "limit"), [(0.5, 0.7930), (0.9, 5.634)])
def test_szegos_rate_for_kac_murdock_and_szego(rho, limit):
    lengths, symbol = [128, 256, 512], functools.partial(kms_symbol, rho)
    distances = [eigenvalue_match(kms(rho, n), symbol).distance for n in lengths]
    assert 512 * distances[-1] == pytest.approx(limit, rel=0.02)
    assert fitted_rate(lengths, distances) == pytest.approx(1, abs=0.05)


def test_szegos_rate_for_a_cosine_symbol_which_is_the_truncated_one():
    operator = ToeplitzOperator.of(lambda d: (d.abs() == 1).to(torch.float64), 400)
    assert 400 * eigenvalue_match(operator).distance == pytest.approx(2 - 8 / math.pi**2, rel=0.01)


def test_singular_values_of_causal_matrices_follow_the_modulus_of_the_symbol():
    lengths = [64, 128, 256]
    causal = [ToeplitzOperator.causal(0.5 ** torch.arange(n, dtype=torch.float64)) for n in lengths]
    distances = [singular_value_match(operator).distance for operator in causal]
    assert fitted_rate(lengths, distances) == pytest.approx(1, abs=0.1)
    eigenvalues = torch.linalg.eigvals(causal[0].dense()).abs()
    assert eigenvalues.max().item() == eigenvalues.min().item() == 1  # the diagonal, nothing of the symbol


@pytest.mark.parametrize(
    ("make", "least"),
    [
        (lambda n: rope_kernel(geometric(32), n), 0.25),
        (lambda n: ToeplitzOperator.of(lambda d: -d.abs(), n), 0.74),
    ],
)
def test_szegos_theorem_is_said_not_to_apply_to_rope_and_alibi(make, least):
    assert not eigenvalue_match(make(256)).theorem_applies
    assert not singular_value_match(make(256)).theorem_applies
    assert min(tail_share(make(n)) for n in (256, 4096, 65536)) > least
    assert tail_share(kms(0.9, 4096)) < 1e-12


def test_a_match_holds_both_sides_and_their_distance():
    operator = kms(0.5, 300)
    found = eigenvalue_match(operator, functools.partial(kms_symbol, 0.5))
    torch.testing.assert_close(found.values, torch.linalg.eigvalsh(operator.dense()))
    middle = (torch.arange(300, dtype=torch.float64) + 0.5) * math.pi / 300
    torch.testing.assert_close(found.quantiles, kms_symbol(0.5, middle).flip(0), atol=1e-3, rtol=0)
    assert found.distance >= (found.values - found.quantiles).abs().mean().item()
    assert found.theorem_applies
    causal = singular_value_match(ToeplitzOperator.causal(operator.lags[299:]))
    torch.testing.assert_close(causal.values, torch.linalg.svdvals(operator.dense().tril()).flip(0))


def test_one_length_or_a_distance_of_zero_has_no_rate():
    assert fitted_rate([9, 9], [0.1, 0.1]) is None
    assert fitted_rate([9, 18], [0.1, 0.0]) is None


def test_rope_has_a_fixed_number_of_eigenvalues_and_alibis_grow_with_the_square():
    for n in (500, 5000):
        assert (rope_kernel_eigenvalues(torch.linspace(0.1, 2, 8), n) > 1e-9 * n).sum().item() == 16
    for n in (200, 400):
        values = torch.linalg.eigvalsh(ToeplitzOperator.of(lambda d: -d.abs(), n).dense())
        assert values[0].item() == pytest.approx(-0.347 * n**2, rel=0.01)
        assert values[-1].item() == pytest.approx(0.2026 * n**2, rel=0.01)


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda: eigenvalue_match(ToeplitzOperator.causal(torch.ones(3))), ConfigError, "must be Hermitian"),
        (lambda: eigenvalue_match(kms(0.5, 4097)), UnsupportedError, "up to 4096 rows; got 4097"),
        (lambda: singular_value_match(kms(0.5, 4097)), UnsupportedError, "up to 4096 rows; got 4097"),
        (lambda: rope_kernel_eigenvalues(torch.ones(2), 0), ConfigError, "n must be at least 1"),
        (lambda: rope_kernel(torch.ones(2) * 1j, 5), ConfigError, "frequencies must be real"),
        (lambda: rope_kernel(torch.tensor([math.nan]), 5), ConfigError, "frequencies must be finite"),
    ],
)
def test_wrong_input_is_refused_in_one_line(call, error, match):
    with pytest.raises(error, match=match):
        call()


@pytest.mark.parametrize("n", [1, 2])
def test_nothing_decays_within_two_positions(n):
    for match in (eigenvalue_match, singular_value_match):
        assert not match(kms(0.01, n)).theorem_applies


def test_a_symbol_that_is_one_number_is_refused():
    with pytest.raises(ConfigError, match=r"symbol must give a value per angle; got \(\)"):
        eigenvalue_match(kms(0.5, 3), lambda theta: torch.tensor(1.0))
