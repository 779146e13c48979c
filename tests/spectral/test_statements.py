"""Statements of the paper about softmax, additive terms and mixed heads: what holds and what does not."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spectrope.spectral import ToeplitzOperator, rope_kernel, row_centred, toeplitz_shares
from spectrope.spectral.logits import masked

SEEDS = st.integers(0, 2**32 - 1)


def attended(logits, causal):
    blocked = torch.ones_like(logits, dtype=torch.bool).triu(1) & causal
    return logits.masked_fill(blocked, -math.inf).softmax(-1)


def lags(n, seed):
    return torch.randn(2 * n - 1, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@given(n=st.sampled_from([2, 3, 31, 63]), seed=SEEDS)
def test_remark_3_1_fails_softmax_keeps_toeplitz_only_where_rows_have_equal_sums(n, seed):
    toeplitz = ToeplitzOperator(lags(n, seed)).dense()
    assert toeplitz_shares(toeplitz).raw.item() == pytest.approx(1)
    assert toeplitz_shares(attended(toeplitz, causal=False)).raw < 1 - 1e-9
    wrapped = lags(n, seed)[:n]
    i = torch.arange(n)
    circulant = wrapped[(i[:, None] - i) % n]
    assert toeplitz_shares(attended(circulant, causal=False)).raw.item() == pytest.approx(1)
    assert toeplitz_shares(attended(circulant, causal=True), causal=True).raw < 1 - 1e-9


def test_remark_3_1_fails_for_alibi_and_for_no_logits_at_all():
    n, slope = 64, 0.5
    alibi = ToeplitzOperator.of(lambda lag: -slope * lag.abs(), n).dense()
    r = math.exp(-slope)
    expected = (1 - r) / (1 - r ** torch.arange(1, n + 1, dtype=torch.float64))
    torch.testing.assert_close(attended(alibi, causal=True).diagonal(), expected)
    uniform = attended(torch.zeros(n, n, dtype=torch.float64), causal=True)
    assert toeplitz_shares(uniform, causal=True).raw.item() == pytest.approx(0.488, abs=5e-4)


@given(n=st.sampled_from([2, 31, 63]), seed=SEEDS, causal=st.booleans())
def test_softmax_ignores_row_constants_which_spectra_do_not(n, seed, causal):
    rng = torch.Generator().manual_seed(seed)
    logits = torch.randn(n, n, generator=rng, dtype=torch.float64)
    moved = logits + 20 * torch.ones(n, 1, dtype=torch.float64)
    torch.testing.assert_close(attended(moved, causal), attended(logits, causal))
    raw, fixed = (
        [torch.linalg.matrix_norm(form(x, causal), 2).item() for x in (logits, moved)]
        for form in (masked, row_centred)
    )
    assert raw[1] > 1.5 * raw[0]
    assert fixed[1] == pytest.approx(fixed[0], rel=1e-9)


def test_cross_terms_of_the_first_layer_depend_on_lags_in_a_straight_line_alone():
    """f(u, j) + g(v, i) has no interaction of i and j, and a function of i - j without one is affine."""
    n = 12
    i = torch.arange(n, dtype=torch.float64)
    delta = i[:, None] - i
    centring = torch.eye(n, dtype=torch.float64) - 1 / n
    for function, is_affine in ((3 * delta - 2, True), (delta**2, False), (delta.cos(), False)):
        interaction = (centring @ function @ centring).abs().max().item()
        assert (interaction < 1e-12) == is_affine


def test_eq_12_fails_heads_without_rotation_are_multiplied_by_ones_not_by_the_identity():
    n, m = 64, 16
    rng = torch.Generator().manual_seed(0)
    nope, rope = (q @ k.T for q, k in torch.randn(2, 2, n, m, generator=rng, dtype=torch.float64))
    frequencies = 10000.0 ** (-torch.arange(m, dtype=torch.float64) / m)
    rotated = rope * rope_kernel(frequencies, n).dense()
    exact = nope * torch.ones_like(nope) + rotated
    papers = nope * torch.eye(n, dtype=torch.float64) + rotated
    assert ((papers - exact).norm() / exact.norm()).item() == pytest.approx(0.7, abs=0.15)
