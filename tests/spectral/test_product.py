"""Sums, products and singular values of logits that are never formed, against dense ones."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spectrope.core.errors import ConfigError
from spectrope.spectral import product
from spectrope.spectral.product import (
    causal_matmul,
    column_sums,
    diagonal_sums,
    logit_energy,
    nearest_toeplitz,
    nearest_toeplitz_product,
    positional_factors,
    row_centred,
    row_sums,
)
from spectrope.spectral.singular import causal_singular_values, effective_ranks, product_singular_values

SIZES = st.sampled_from([1, 2, 31, 63, 64, 65, 127, 131])
SEEDS = st.integers(0, 2**32 - 1)
WIDTHS = st.sampled_from([1, 2, 7, 8, 17])


def head(n, d, seed):
    return torch.randn(2, n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def dense(q, k, causal):
    logits = q @ k.T
    return logits.tril() if causal else logits


@given(n=SIZES, d=WIDTHS, seed=SEEDS, causal=st.booleans())
def test_sums_equal_the_dense_ones(n, d, seed, causal):
    q, k = head(n, d, seed)
    logits = dense(q, k, causal)
    traces = torch.stack([(q @ k.T).diagonal(-lag).sum() for lag in range(1 - n, n)])
    torch.testing.assert_close(diagonal_sums(q, k), traces)
    torch.testing.assert_close(row_sums(q, k, causal), logits.sum(1))
    torch.testing.assert_close(column_sums(q, k, causal), logits.sum(0))
    assert logit_energy(q, k, causal) == pytest.approx((logits**2).sum().item())
    x = torch.randn(n, 3, dtype=torch.float64)
    torch.testing.assert_close(causal_matmul(q, k, x, chunk=16), (q @ k.T).tril() @ x)


@given(n=SIZES, seed=SEEDS, causal=st.booleans())
def test_the_nearest_toeplitz_matrix_leaves_a_residual_orthogonal_to_all(n, seed, causal):
    q, k = head(n, 5, seed)
    logits, found = dense(q, k, causal), nearest_toeplitz_product(q, k, causal)
    torch.testing.assert_close(found.lags, nearest_toeplitz(q @ k.T, causal).lags)
    residual = logits - found.dense()
    for lag in range(n):
        assert abs(residual.diagonal(-lag).sum().item()) < 1e-9 * n
    assert found.is_causal or not causal


@pytest.mark.parametrize(("left", "right"), [(1e-60, 1e-60), (1e60, 1e-60), (1e30, 1e30)])
def test_the_softmax_gauge_keeps_its_digits_at_any_scale(left, right):
    q, k = head(40, 4, 0)
    plain, scaled = row_centred(q, k, causal=True), row_centred(q * left, k * right, causal=True)
    centred = (scaled[0] @ scaled[1].T).tril() / (left * right)
    torch.testing.assert_close(centred, (plain[0] @ plain[1].T).tril())
    sizes = [(x.norm() * y.norm()).item() for x, y in (plain, scaled)]
    assert sizes[1] == pytest.approx(sizes[0] * left * right)


def test_columns_are_taken_in_float64_and_without_their_history():
    q, k = head(9, 3, 0)
    x = torch.ones(9, 2, requires_grad=True)
    found = causal_matmul(q, k, x)
    assert found.dtype == torch.float64
    assert not found.requires_grad


def test_transforms_in_parts_change_nothing(monkeypatch):
    q, k = head(300, 11, 0)
    whole = diagonal_sums(q, k)
    monkeypatch.setattr(product, "TRANSFORMED", 1)
    torch.testing.assert_close(diagonal_sums(q, k), whole)


@pytest.mark.parametrize("d", [1, 2, 3])
def test_sums_leave_their_arguments_alone(d):
    q, k = head(10, d, 0)
    before = q.clone(), k.clone()
    diagonal_sums(q, k)
    assert torch.equal(q, before[0])
    assert torch.equal(k, before[1])


def test_the_nearest_toeplitz_matrix_of_a_complex_and_of_a_toeplitz_matrix():
    waves = torch.exp(1j * torch.arange(-4, 5, dtype=torch.float64))
    operator = product.ToeplitzOperator(waves)
    torch.testing.assert_close(nearest_toeplitz(operator.dense()).lags, waves)


@given(n=SIZES, d=WIDTHS, seed=SEEDS, causal=st.booleans())
def test_the_softmax_gauge_is_fixed_by_factors(n, d, seed, causal):
    q, k = head(n, d, seed)
    logits, allowed = dense(q, k, causal), torch.ones(n, n, dtype=torch.bool)
    allowed = allowed.tril() if causal else allowed
    means = logits.sum(1, keepdim=True) / allowed.sum(1, keepdim=True)
    torch.testing.assert_close(dense(*row_centred(q, k, causal), causal), (logits - means) * allowed)


def test_positional_factors_give_what_rotation_changes():
    (a, b), (q, k) = head(20, 4, 0), head(20, 4, 1)
    left, right = positional_factors(a, b, q, k)
    torch.testing.assert_close(left @ right.T, a @ b.T - q @ k.T)


@given(n=SIZES, d=WIDTHS, seed=SEEDS)
def test_singular_values_of_full_logits(n, d, seed):
    q, k = head(n, d, seed)
    found = product_singular_values(q, k)
    expected = torch.linalg.svdvals(q @ k.T)
    assert len(found) == min(n, d)
    torch.testing.assert_close(found, expected[: len(found)])
    assert not expected[len(found) :].gt(1e-10 * expected[0]).any()


def test_small_singular_values_survive_where_gram_matrices_lose_them():
    q, k = head(200, 3, 0)
    q = torch.linalg.qr(q).Q * torch.tensor([1.0, 1e-5, 1e-10], dtype=torch.float64)
    k = torch.linalg.qr(k).Q
    expected = torch.tensor([1.0, 1e-5, 1e-10], dtype=torch.float64)
    torch.testing.assert_close(product_singular_values(q, k), expected, rtol=1e-5, atol=0)


@pytest.mark.parametrize(("n", "count"), [(1, 1), (63, 63), (513, 1), (600, 4), (514, 513)])
def test_singular_values_of_causal_logits(n, count):
    q, k = head(n, 6, n)
    expected = torch.linalg.svdvals((q @ k.T).tril())[:count]
    torch.testing.assert_close(causal_singular_values(q, k, count), expected, rtol=1e-9, atol=1e-9)


def test_eigenvalues_of_causal_logits_are_the_diagonal_which_rotation_keeps():
    q, k = head(40, 2, 0)
    angle = torch.arange(40, dtype=torch.float64)
    turn = torch.stack(
        [torch.stack([angle.cos(), -angle.sin()], 1), torch.stack([angle.sin(), angle.cos()], 1)], 1
    )
    q_turned, k_turned = (torch.einsum("nab,nb->na", turn, x) for x in (q, k))
    values = torch.linalg.eigvals((q_turned @ k_turned.T).tril()).real.sort().values
    torch.testing.assert_close(values, (q * k).sum(1).sort().values)


def test_effective_ranks_of_equal_values_count_them_and_are_ordered():
    assert vars(effective_ranks(torch.tensor([2.0, 2.0, 2.0, 0.0]))) == pytest.approx(
        {"stable": 3, "participation": 3, "entropy": 3}
    )
    ranks = effective_ranks(torch.tensor([3.0, 1.0, 0.5]))
    assert 1 <= ranks.stable <= ranks.participation <= ranks.entropy <= 3


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda q, k: diagonal_sums(q, k[:-1]), r"one shape \(n, d\)"),
        (lambda q, k: diagonal_sums(q[0], k), r"q must have shape \(n, d\)"),
        (lambda q, k: diagonal_sums(q[:0], k[:0]), r"n, d >= 1; got \(0, 4\)"),
        (lambda q, k: diagonal_sums(q, k + 1j), "k must be real"),
        (lambda q, k: logit_energy(q * math.nan, k), "q must be finite; got 20 of 20"),
        (lambda q, k: row_sums(q, k * math.inf), "k must be finite"),
        (lambda q, k: column_sums(q * math.nan, k), "q must be finite"),
        (lambda q, k: causal_matmul(q, k, q * math.nan), "x must be finite"),
        (lambda q, k: causal_matmul(q, k, q + 1j), "x must be real"),
        (lambda q, k: logit_energy(q, k * 1e80), "Rescale it"),
        (lambda q, k: causal_matmul(q, k, torch.ones(4, 1)), r"x must have shape \(5, c\)"),
        (lambda q, k: causal_singular_values(q, k, 0), "count must lie between 1 and n = 5; got 0"),
        (lambda q, k: causal_singular_values(q, k, 6), "got 6"),
        (lambda q, k: nearest_toeplitz(q), r"must be square; got \(5, 4\)"),
        (lambda q, k: effective_ranks(torch.zeros(3)), "must not all be zero"),
        (lambda q, k: effective_ranks(torch.tensor([1.0, -1.0])), "not negative"),
    ],
)
def test_wrong_input_is_refused_in_one_line(call, match):
    q, k = head(5, 4, 0)
    with pytest.raises(ConfigError, match=match):
        call(q, k)


def test_strides_precision_and_scale_do_not_matter():
    q, k = head(50, 8, 0)
    expected = diagonal_sums(q, k)
    strided = torch.stack([q, k], 2)
    torch.testing.assert_close(diagonal_sums(strided[..., 0], strided[..., 1]), expected)
    torch.testing.assert_close(diagonal_sums(q * 1e60, k * 1e-60), expected)
    odd = torch.cat([q.new_zeros(1), q.flatten()])[1:].view(q.shape)  # one number into its memory
    torch.testing.assert_close(diagonal_sums(odd, k), expected)
    low = diagonal_sums(q.float(), k.bfloat16())
    assert low.dtype == torch.float64
    torch.testing.assert_close(low, diagonal_sums(q.float().double(), k.bfloat16().double()))


def test_float32_logits_with_a_huge_common_part_are_centred_without_loss():
    q, k = head(100, 8, 0)
    offset = 1e6 * torch.ones(8, dtype=torch.float64)
    plain, shifted = row_centred(q, k), row_centred(q, k + offset)
    np.testing.assert_allclose(logit_energy(*shifted), logit_energy(*plain), rtol=1e-8)


def test_gradients_are_not_tracked():
    q, k = (x.requires_grad_() for x in head(5, 2, 0).clone().unbind())
    assert not diagonal_sums(q, k).requires_grad
