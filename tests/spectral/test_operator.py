"""Toeplitz operators, their symbols and certified ranges, against dense matrices and closed forms."""

import math

import pytest
import scipy.linalg
import torch
from hypothesis import given
from hypothesis import strategies as st

from spectrope.core.errors import ConfigError
from spectrope.spectral import ToeplitzOperator, symbol_range

SIZES = st.sampled_from([1, 2, 3, 31, 63, 64, 97])
SEEDS = st.integers(0, 2**32 - 1)


def lags(n, seed, is_complex=False):
    rng = torch.Generator().manual_seed(seed)
    dtype = torch.complex128 if is_complex else torch.float64
    return torch.randn(2 * n - 1, generator=rng, dtype=dtype)


def fejer(width, n):
    return ToeplitzOperator.hermitian((1 - torch.arange(n, dtype=torch.float64) / width).clamp(min=0))


@given(
    n=SIZES,
    seed=SEEDS,
    is_complex=st.booleans(),
    columns=st.integers(1, 3),
    band=st.sampled_from([0, 1, 5, 62, 96]),
)
def test_products_equal_the_dense_ones(n, seed, is_complex, columns, band):
    within = torch.arange(1 - n, n).abs() <= band
    operator = ToeplitzOperator(lags(n, seed, is_complex) * within)
    assert operator.bandwidth == min(band, n - 1)
    x, y = lags(n * columns, seed + 1, is_complex)[: n * columns].view(n, columns), lags(n, seed + 2)[:n]
    dense = operator.dense()
    torch.testing.assert_close(operator @ x, dense @ x)
    torch.testing.assert_close(operator @ y, dense @ y.to(dense))


@given(n=SIZES, seed=SEEDS, is_complex=st.booleans())
def test_dense_is_scipys_and_the_flags_tell_the_kind(n, seed, is_complex):
    t = lags(n, seed, is_complex)
    reference = scipy.linalg.toeplitz(t[n - 1 :].numpy(), t[:n].flip(0).numpy())
    operator = ToeplitzOperator(t)
    assert operator.n == n
    assert torch.equal(operator.dense(), torch.from_numpy(reference))
    assert operator.hermitian_part().is_hermitian
    assert operator.is_hermitian == (n == 1 and not is_complex)
    torch.testing.assert_close(ToeplitzOperator.causal(t[n - 1 :]).dense(), operator.dense().tril())


def test_an_operator_of_a_lag_function_and_a_hadamard_product():
    decay = ToeplitzOperator.of(lambda d: 0.5 ** d.abs(), 7)
    wave = ToeplitzOperator.of(torch.cos, 7)
    assert decay.is_hermitian
    torch.testing.assert_close(decay.hadamard(wave).dense(), decay.dense() * wave.dense())


@given(n=SIZES, seed=SEEDS, is_complex=st.booleans(), points=st.integers(1, 300))
def test_symbols_on_a_grid_are_those_at_its_angles(n, seed, is_complex, points):
    operator = ToeplitzOperator(lags(n, seed, is_complex))
    for kind in (operator, operator.hermitian_part()):
        grid = kind.symbol_on_grid(points)
        theta = torch.arange(len(grid), dtype=torch.float64) * (2 * math.pi / points)
        torch.testing.assert_close(grid, kind.symbol(theta))
        assert grid.is_complex() != kind.is_hermitian


@given(n=SIZES, seed=SEEDS, is_complex=st.booleans())
def test_fejer_means_are_rayleigh_quotients_of_plane_waves(n, seed, is_complex):
    operator = ToeplitzOperator(lags(n, seed, is_complex))
    theta = torch.tensor([0.0, 0.7, 3.0], dtype=torch.float64)
    waves = torch.exp(-1j * theta[:, None] * torch.arange(n)) / math.sqrt(n)
    quotients = (waves.conj() * (operator @ waves.T).T).sum(1)
    torch.testing.assert_close(operator.fejer().symbol(theta).to(quotients), quotients)


@pytest.mark.parametrize("width", [1, 5, 16])
def test_fejers_kernel_has_its_closed_symbol(width):
    theta = torch.linspace(0.1, 3.1, 50, dtype=torch.float64)
    closed = (torch.sin(width * theta / 2) / torch.sin(theta / 2)) ** 2 / width
    torch.testing.assert_close(fejer(width, 40).symbol(theta), closed)


@given(n=SIZES, seed=SEEDS, is_complex=st.booleans())
def test_the_bracket_holds_the_eigenvalues_and_the_symbol(n, seed, is_complex):
    operator = ToeplitzOperator(lags(n, seed, is_complex)).hermitian_part()
    values = torch.linalg.eigvalsh(operator.dense())
    found = symbol_range(operator)
    fine = operator.symbol(torch.linspace(-math.pi, math.pi, 4001, dtype=torch.float64))
    slack = 1e-10 * (1 + values.abs().max().item())
    assert found.lower_bound - slack <= fine.min().item()
    assert fine.max().item() <= found.upper_bound + slack
    assert found.lower_bound - slack <= values[0].item() <= found.min_bound + slack
    assert found.max_bound - slack <= values[-1].item() <= found.upper_bound + slack


def test_decaying_lags_are_bracketed_far_tighter_than_by_the_grid_alone():
    found = symbol_range(ToeplitzOperator.of(lambda d: 0.5 ** d.abs(), 2048))
    assert 3 <= found.upper_bound <= 3 + 1e-6  # (1 + .5) / (1 - .5), where Ehlich and Zeller alone give 3.1
    assert 1 / 3 - 1e-6 <= found.lower_bound <= 1 / 3


def test_low_precision_and_strided_lags_are_read_exactly():
    base = torch.arange(18, dtype=torch.float32)
    operator = ToeplitzOperator(base[::2])
    assert operator.lags.dtype == torch.float64
    assert torch.equal(operator.dense()[:, 0], torch.arange(8.0, 17, 2, dtype=torch.float64))
    half = ToeplitzOperator(torch.ones(3, dtype=torch.float16))
    assert torch.equal(half @ torch.ones(2, dtype=torch.bfloat16), torch.full((2,), 2.0, dtype=torch.float64))


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: ToeplitzOperator(torch.ones(4)), "odd number; got 4"),
        (lambda: ToeplitzOperator(torch.ones(0)), r"shape \(n,\) with n >= 1; got \(0,\)"),
        (lambda: ToeplitzOperator(torch.ones(3, 3)), r"got \(3, 3\)"),
        (lambda: ToeplitzOperator(torch.tensor([1.0, math.nan, 1.0])), "1 of 3 NaN or infinite"),
        (lambda: ToeplitzOperator(torch.tensor([math.inf])), "must be finite"),
        (lambda: ToeplitzOperator(torch.tensor([1e200], dtype=torch.float64)), "Rescale it"),
        (lambda: ToeplitzOperator(torch.tensor([1e-200], dtype=torch.float64)), "Rescale it"),
        (lambda: ToeplitzOperator.hermitian(torch.tensor([1j, 1.0])), "must be real; got 1j"),
        (lambda: fejer(2, 3) @ torch.ones(2), r"x must have shape \(3,\) or \(3, c\); got \(2,\)"),
        (lambda: fejer(2, 3).hadamard(fejer(2, 4)), "sizes must agree; got 3 and 4"),
        (lambda: symbol_range(ToeplitzOperator.causal(torch.ones(3))), "must be Hermitian"),
    ],
)
def test_wrong_input_is_refused_in_one_line(make, match):
    with pytest.raises(ConfigError, match=match):
        make()


def test_the_zero_matrix_is_a_right_answer():
    zero = ToeplitzOperator(torch.zeros(9))
    assert not (zero @ torch.ones(5)).any()
    assert symbol_range(zero) == symbol_range(ToeplitzOperator(torch.zeros(3)))


def test_an_operator_keeps_its_lags():
    lags = torch.ones(3, dtype=torch.float64)
    operator = ToeplitzOperator(lags)
    lags[0] = 7.0
    assert operator.lags.tolist() == [1.0, 1.0, 1.0]
