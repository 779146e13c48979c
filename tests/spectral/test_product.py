"""Sums over logits that are never formed, against dense ones."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spectrope.core.errors import ConfigError
from spectrope.spectral import product
from spectrope.spectral.product import causal_row_means, diagonal_sums_of_product, logit_energy

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
    torch.testing.assert_close(diagonal_sums_of_product(q, k), traces)
    torch.testing.assert_close(logit_energy(q, k, causal), (logits**2).sum())
    means = (q @ k.T).tril().sum(1) / torch.arange(1, n + 1)
    torch.testing.assert_close(causal_row_means(q, k), means)


def test_sums_in_parts_change_nothing(monkeypatch):
    q, k = head(300, 11, 0)
    whole = diagonal_sums_of_product(q, k)
    means = causal_row_means(q, k)
    monkeypatch.setattr(product, "TRANSFORMED", 1)
    torch.testing.assert_close(diagonal_sums_of_product(q, k), whole)
    monkeypatch.setattr(product, "ROWS", 70)
    torch.testing.assert_close(causal_row_means(q, k), means)


@pytest.mark.parametrize("d", [1, 2, 3])
def test_sums_leave_their_arguments_alone(d):
    q, k = head(10, d, 0)
    before = q.clone(), k.clone()
    diagonal_sums_of_product(q, k)
    assert torch.equal(q, before[0])
    assert torch.equal(k, before[1])


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda q, k: diagonal_sums_of_product(q, k[:-1]), r"one shape \(n, d\)"),
        (lambda q, k: diagonal_sums_of_product(q[0], k), r"q must have shape \(n, d\)"),
        (lambda q, k: diagonal_sums_of_product(q[:0], k[:0]), r"n, d >= 1; got \(0, 4\)"),
        (lambda q, k: diagonal_sums_of_product(q, k + 1j), "k must be real"),
        (lambda q, k: logit_energy(q * math.nan, k), "q must be finite; got 20 of 20"),
        (lambda q, k: logit_energy(q, k * 1e80), "Rescale it"),
    ],
)
def test_wrong_input_is_refused_in_one_line(call, match):
    q, k = head(5, 4, 0)
    with pytest.raises(ConfigError, match=match):
        call(q, k)


def test_strides_precision_and_scale_do_not_matter():
    q, k = head(50, 8, 0)
    expected = diagonal_sums_of_product(q, k)
    strided = torch.stack([q, k], 2)
    torch.testing.assert_close(diagonal_sums_of_product(strided[..., 0], strided[..., 1]), expected)
    torch.testing.assert_close(diagonal_sums_of_product(q * 1e60, k * 1e-60), expected)
    odd = torch.cat([q.new_zeros(1), q.flatten()])[1:].view(q.shape)  # one number into its memory
    torch.testing.assert_close(diagonal_sums_of_product(odd, k), expected)
    low = diagonal_sums_of_product(q.float(), k.bfloat16())
    assert low.dtype == torch.float64
    torch.testing.assert_close(low, diagonal_sums_of_product(q.float().double(), k.bfloat16().double()))


def test_gradients_are_not_tracked():
    q, k = (x.requires_grad_() for x in head(5, 2, 0).clone().unbind())
    assert not diagonal_sums_of_product(q, k).requires_grad
