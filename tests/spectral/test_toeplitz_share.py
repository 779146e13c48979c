"""Lag effects and Toeplitz shares against dense least squares, and what is Toeplitz."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from spectrope.core.errors import ConfigError
from spectrope.spectral import (
    commutes_with_rotations,
    lag_effects,
    lag_effects_of_product,
    nearest_toeplitz,
    nearest_toeplitz_of_product,
    null_shares,
    row_centred,
    toeplitz_shares,
    toeplitz_shares_of_product,
)
from spectrope.spectral.logits import allowed_pairs, masked

SIZES = st.sampled_from([2, 3, 7, 31, 47])
SEEDS = st.integers(0, 2**32 - 1)


def draw(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def dense_fit(logits, causal, columns=False):
    """The definition: least squares on indicators of rows [and columns], without and with those of lags.

    Returns:
        Lag effects, their share in what the others leave, and degrees of freedom gained and left.
    """
    n = len(logits)
    i, j = np.indices((n, n))
    allowed = (j <= i) if causal else np.ones((n, n), bool)
    i, j, y = i[allowed], j[allowed], logits.numpy()[allowed]
    gauge = np.hstack([np.eye(n)[i], *([np.eye(n)[j]] if columns else [])])
    full = np.hstack([gauge, np.eye(2 * n - 1)[i - j + n - 1]])
    fits = [np.linalg.lstsq(design, y, rcond=None)[0] for design in (gauge, full)]
    left = [float(((y - design @ fit) ** 2).sum()) for design, fit in zip((gauge, full), fits, strict=True)]
    ranks = [np.linalg.matrix_rank(design) for design in (gauge, full)]
    effects = fits[1][-(2 * n - 1) :][n - 1 if causal else 0 :]
    return effects - effects.mean(), 1 - left[1] / left[0], ranks[1] - ranks[0], len(y) - ranks[0]


@settings(max_examples=30)
@given(n=SIZES, seed=SEEDS, causal=st.booleans())
def test_effects_and_shares_are_those_of_the_dense_definition(n, seed, causal):
    q, k = draw(2, n, 5, seed=seed)
    logits = q @ k.T
    expected, share, gained, left = dense_fit(logits, causal)
    scale = abs(expected).max() + 1
    for found in (lag_effects(logits, causal), lag_effects_of_product(q, k, causal)):
        np.testing.assert_allclose(found.lags.numpy(), expected, atol=1e-9 * scale)
        assert found.share.item() == pytest.approx(share, abs=1e-9)
    nulls = null_shares(n, causal)
    assert nulls.gauge_fixed.item() == (pytest.approx(gained / left) if left else 1.0)
    means = nearest_toeplitz(logits, causal).dense()
    seen, allowed = masked(logits, causal), allowed_pairs(n, causal)
    centred = torch.where(allowed, logits - logits[allowed].mean(), 0)
    part = nearest_toeplitz(centred, causal).dense()
    for found in (toeplitz_shares(logits, causal), toeplitz_shares_of_product(q, k, causal)):
        assert found.raw.item() == pytest.approx((means.norm() / seen.norm()).item() ** 2, rel=1e-9)
        assert found.mean_removed.item() == pytest.approx(
            (part.norm() / centred.norm()).item() ** 2, rel=1e-8
        )
        assert found.gauge_fixed.item() == pytest.approx(share, abs=1e-9)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("n", [2, 3, 7, 20])
def test_many_logits_at_once_are_measured_one_by_one(n, causal):
    logits = draw(3, 2, n, n)
    shares, effects = toeplitz_shares(logits, causal), lag_effects(logits, causal)
    for place in ((0, 0), (2, 1)):
        single = toeplitz_shares(logits[place], causal)
        for name, value in vars(single).items():
            assert getattr(shares, name)[place].item() == pytest.approx(value.item(), rel=1e-12)
        assert_close(effects.lags[place], lag_effects(logits[place], causal).lags, atol=1e-12, rtol=1e-9)


@pytest.mark.parametrize("causal", [False, True])
def test_shares_of_independent_entries_have_the_stated_means(causal):
    shares, nulls = toeplitz_shares(draw(300, 12, 12), causal), null_shares(12, causal)
    for name, null in vars(nulls).items():
        values = getattr(shares, name)
        assert abs(values.mean() - null) < 3.5 * values.std() / math.sqrt(len(values))


def test_one_entry_has_no_share_beside_row_effects():
    assert null_shares(1).gauge_fixed.isnan()


def test_row_effects_change_raw_shares_but_not_the_gauge_fixed_one():
    q, k = draw(2, 40, 4)
    plain, shifted = toeplitz_shares_of_product(q, k), toeplitz_shares_of_product(q, k + 100)
    assert_close(shifted.gauge_fixed, plain.gauge_fixed, rtol=1e-8, atol=0)
    assert abs(shifted.raw - plain.raw) > 0.02


@pytest.mark.parametrize("causal", [False, True])
def test_huge_row_effects_cost_no_digits(causal):
    logits = draw(20, 20)
    moved = logits + 1e6 * draw(20, 1, seed=1)
    assert_close(lag_effects(moved, causal).share, lag_effects(logits, causal).share, rtol=1e-8, atol=0)
    q, k = draw(2, 100, 8)
    moved = lag_effects_of_product(q, k + 1e6, causal)
    assert_close(moved.share, lag_effects_of_product(q, k, causal).share, rtol=1e-7, atol=0)


@pytest.mark.parametrize("causal", [False, True])
def test_toeplitz_logits_are_toeplitz_whatever_is_added_to_rows(causal):
    n, kernel = 9, draw(17)
    lag = torch.arange(n)[:, None] - torch.arange(n)
    logits = kernel[lag + n - 1] + draw(n, 1, seed=1)
    found, seen = lag_effects(logits, causal), kernel[n - 1 if causal else 0 :]
    assert found.share.item() == pytest.approx(1)
    assert toeplitz_shares(logits, causal).raw < 0.9
    assert_close(found.lags, seen - seen.mean())


def test_a_constant_leaves_nothing_to_explain():
    for causal in (False, True):
        for found in (
            toeplitz_shares_of_product(torch.ones(30, 1), torch.ones(30, 1), causal),
            toeplitz_shares(torch.ones(30, 30), causal),
        ):
            assert found.raw.item() == pytest.approx(1)
            assert found.mean_removed.isnan()
            assert found.gauge_fixed.isnan()
        assert lag_effects(draw(6, 1).expand(6, 6), causal).share.isnan()
        assert toeplitz_shares(torch.zeros(4, 4), causal).raw.isnan()


def test_what_lies_above_the_diagonal_is_never_read():
    logits = draw(8, 8)
    spoilt = torch.where(allowed_pairs(8, True), logits, torch.inf)
    for measure in (
        lambda x: toeplitz_shares(x, True).raw,
        lambda x: lag_effects(x, True).lags,
        lambda x: row_centred(x, True),
    ):
        assert_close(measure(spoilt), measure(logits))


def test_centred_rows_have_mean_zero_over_the_allowed_keys():
    logits = draw(2, 7, 7)
    for causal in (True, False):
        allowed, centred = allowed_pairs(7, causal), row_centred(logits, causal)
        assert centred.sum(-1).abs().max() < 1e-12
        assert not centred[:, ~allowed].any()
        moved = torch.where(allowed, logits - centred, torch.nan)
        assert_close(moved.nanmean(-1, keepdim=True).expand_as(moved)[:, allowed], moved[:, allowed])


@given(n=st.sampled_from([1, 2, 31, 64]), seed=SEEDS, causal=st.booleans())
def test_the_nearest_toeplitz_matrix_leaves_a_residual_orthogonal_to_all(n, seed, causal):
    q, k = draw(2, n, 5, seed=seed)
    logits, found = masked(q @ k.T, causal), nearest_toeplitz_of_product(q, k, causal)
    assert_close(found.lags, nearest_toeplitz(q @ k.T, causal).lags)
    residual = logits - found.dense()
    for lag in range(n):
        assert abs(residual.diagonal(-lag).sum().item()) < 1e-9 * n
    waves = torch.exp(1j * torch.arange(1 - n, n))
    i = torch.arange(n)
    assert_close(nearest_toeplitz(waves[i[:, None] - i + n - 1]).lags, waves.to(torch.complex128))


def test_sinusoidal_positions_are_toeplitz_exactly_if_the_form_commutes_with_rotations():
    n, planes = 64, 4
    angle = torch.outer(
        torch.arange(n, dtype=torch.float64), 10.0 ** -torch.arange(planes, dtype=torch.float64)
    )
    p = torch.stack([angle.cos(), angle.sin()], -1).flatten(1)
    commuting = torch.zeros(8, 8, dtype=torch.float64)
    for t, (a, b) in enumerate(draw(planes, 2)):
        commuting[2 * t : 2 * t + 2, 2 * t : 2 * t + 2] = torch.tensor([[a, -b], [b, a]])
    generic = draw(8, 8, seed=1)
    assert commutes_with_rotations(commuting, planes)
    assert not commutes_with_rotations(generic, planes)
    assert toeplitz_shares_of_product(p @ commuting, p).raw.item() == pytest.approx(1)
    assert toeplitz_shares_of_product(p @ generic, p).raw < 0.9
    # p -> p + const: look modulo rows and columns
    assert toeplitz_shares_of_product((p + 1) @ commuting, p + 1).raw < 0.99
    _, share, _, _ = dense_fit((p[:20] + 1) @ commuting @ (p[:20] + 1).T, causal=False, columns=True)
    assert share == pytest.approx(1)


def test_a_random_form_keeps_the_toeplitz_fraction_of_the_theory():
    frequencies = 10000.0 ** (-torch.arange(32, dtype=torch.float64) / 32)
    for n, expected in ((128, 0.36), (2048, 0.10)):
        angle = torch.outer(torch.arange(n, dtype=torch.float64), frequencies)
        p = torch.cat([angle.cos(), angle.sin()], 1)
        raw = torch.stack([toeplitz_shares_of_product(p @ m, p).raw for m in draw(24, 64, 64, seed=1)])
        assert abs(raw.mean() - expected) < 3.5 * raw.std() / math.sqrt(len(raw))


@pytest.mark.parametrize("causal", [False, True])
def test_effects_at_ten_thousand_positions_recover_planted_lags(causal):
    n = 10_000
    angle = 0.01 * torch.arange(n, dtype=torch.float64)
    wave = torch.stack([angle.cos(), angle.sin()], 1)
    q = torch.cat([wave, draw(n, 1)], 1)
    k = torch.cat([wave, torch.ones(n, 1)], 1)  # a wave of the lag, and a random row effect
    found = lag_effects_of_product(q, k, causal)
    assert found.share.item() == pytest.approx(1, abs=1e-9)
    planted = (0.01 * torch.arange(0 if causal else 1 - n, n, dtype=torch.float64)).cos()
    assert_close(found.lags, planted - planted.mean(), atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: lag_effects_of_product(torch.ones(1, 2), torch.ones(1, 2)), "at least two positions; got 1"),
        (lambda: lag_effects(torch.ones(5, 1, 1), causal=True), "at least two positions; got 1"),
        (lambda: toeplitz_shares(torch.ones(2, 3)), "logits must be square"),
        (lambda: toeplitz_shares(torch.ones(4), causal=True), r"logits must be square; got \(4,\)"),
        (lambda: toeplitz_shares(torch.full((2, 2), math.nan)), "logits must be finite"),
        (lambda: nearest_toeplitz(torch.ones(5, 4)), r"must be square; got \(5, 4\)"),
        (lambda: commutes_with_rotations(torch.ones(0, 0), 0), r"form must have shape \(n, d\), n, d >= 1"),
        (lambda: commutes_with_rotations(torch.ones(4, 4), 3), "form must be 6 square"),
    ],
)
def test_wrong_input_is_refused_in_one_line(call, match):
    with pytest.raises(ConfigError, match=match):
        call()


def test_entries_above_the_diagonal_are_absent_from_the_nearest_causal_one():
    matrix = torch.randn(5, 5)
    unseen = torch.ones(5, 5, dtype=torch.bool).triu(1)
    nearest = nearest_toeplitz(matrix.masked_fill(unseen, -torch.inf), causal=True)
    assert_close(nearest.lags, nearest_toeplitz(matrix, causal=True).lags)
