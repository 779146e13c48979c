"""Row, column and lag effects of logits, and Toeplitz shares, against dense least squares."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from spectrope.core.errors import ConfigError
from spectrope.spectral.anova import LogitSums, fit_lag_effects, lag_anova
from spectrope.spectral.hidden import commutes_with_rotations
from spectrope.spectral.toeplitzness import toeplitz_share, toeplitz_share_of_matrix

SIZES = st.sampled_from([2, 3, 7, 31, 47])


def head(n, d, seed):
    return torch.randn(2, n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def designs(n, causal, columns):
    """Indicator matrices of the gauge and of the full model over the allowed pairs, and these pairs."""
    i, j = np.indices((n, n))
    allowed = (j <= i) if causal else np.ones((n, n), bool)
    i, j = i[allowed], j[allowed]
    gauge = [np.eye(n)[i]] + ([np.eye(n)[j]] if columns else [])
    return np.hstack(gauge), np.hstack([*gauge, np.eye(2 * n - 1)[i - j + n - 1]]), allowed


def explained(design, y):
    return float(np.linalg.lstsq(design, y, rcond=None)[0] @ (design.T @ y))


@settings(max_examples=30)
@given(n=SIZES, seed=st.integers(0, 2**32 - 1), causal=st.booleans(), columns=st.booleans())
def test_effects_are_the_least_squares_fit(n, seed, causal, columns):
    q, k = head(n, 5, seed)
    logits = (q @ k.T).numpy()
    gauge, full, allowed = designs(n, causal, columns)
    y = logits[allowed]
    found = fit_lag_effects(LogitSums.of_product(q, k, causal, columns))
    assert found.energy == pytest.approx(y @ y)
    assert found.gauge_energy == pytest.approx(explained(gauge, y), abs=1e-9 * (y @ y))
    assert found.fitted_energy == pytest.approx(explained(full, y), rel=1e-9)
    first = 0 if causal else 1 - n
    lag = np.subtract.outer(np.arange(n), np.arange(n)) - first
    fit = found.rows.numpy()[:, None] + found.columns.numpy() + found.lags.numpy()[lag.clip(0)]
    assert ((logits - fit)[allowed] ** 2).sum() == pytest.approx(
        y @ y - found.fitted_energy, abs=1e-8 * (y @ y)
    )


@pytest.mark.parametrize("n", [2, 3, 8, 13])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("columns", [False, True])
def test_the_null_is_the_ratio_of_degrees_of_freedom(n, causal, columns):
    gauge, full, _ = designs(n, causal, columns)
    rank = np.linalg.matrix_rank(gauge)
    gained, left = np.linalg.matrix_rank(full) - rank, len(full) - rank
    q, k = head(n, 3, 0)
    null = lag_anova(q, k, causal, columns).null
    assert null == (pytest.approx(gained / left) if left else 1.0)


@pytest.mark.parametrize("causal", [False, True])
def test_shares_of_independent_entries_are_zero_on_average_once_calibrated(causal):
    rng = torch.Generator().manual_seed(0)
    draws = [
        toeplitz_share_of_matrix(torch.randn(12, 12, generator=rng, dtype=torch.float64), causal)
        for _ in range(300)
    ]
    for name in ("calibrated", "calibrated_mean_removed", "calibrated_gauge_fixed"):
        values = np.array([getattr(draw, name) for draw in draws])
        assert abs(values.mean()) < 3.5 * values.std() / math.sqrt(len(values))


@settings(max_examples=20)
@given(n=SIZES, seed=st.integers(0, 2**32 - 1), causal=st.booleans())
def test_shares_of_a_product_are_those_of_its_matrix(n, seed, causal):
    q, k = head(n, 3, seed)
    one, other = toeplitz_share(q, k, causal), toeplitz_share_of_matrix(q @ k.T, causal)
    assert vars(one) == pytest.approx(vars(other), abs=1e-8, nan_ok=True)


def test_row_effects_change_raw_shares_but_not_the_gauge_fixed_one():
    q, k = head(40, 4, 0)
    plain, shifted = toeplitz_share(q, k), toeplitz_share(q, k + 100)
    assert shifted.gauge_fixed == pytest.approx(plain.gauge_fixed, rel=1e-8)
    assert abs(shifted.raw - plain.raw) > 0.02


def test_toeplitz_logits_have_share_one_and_a_constant_one_has_nothing_left():
    angle = 0.4 * torch.arange(30, dtype=torch.float64)
    wave = torch.stack([angle.cos(), angle.sin()], 1)
    found = toeplitz_share(wave, wave)
    assert found.raw == pytest.approx(1)
    assert found.gauge_fixed == pytest.approx(1)
    assert found.calibrated == pytest.approx(1)
    ones = toeplitz_share(torch.ones(30, 1), torch.ones(30, 1))
    assert ones.raw == pytest.approx(1)
    assert math.isnan(ones.mean_removed)
    assert math.isnan(ones.gauge_fixed)


def test_sinusoidal_positions_are_toeplitz_exactly_if_the_form_commutes_with_rotations():
    n, planes = 64, 4
    angle = torch.outer(
        torch.arange(n, dtype=torch.float64), 10.0 ** -torch.arange(planes, dtype=torch.float64)
    )
    p = torch.stack([angle.cos(), angle.sin()], -1).flatten(1)
    rng = torch.Generator().manual_seed(0)
    commuting = torch.zeros(8, 8, dtype=torch.float64)
    for t in range(planes):
        a, b = torch.randn(2, generator=rng, dtype=torch.float64)
        commuting[2 * t : 2 * t + 2, 2 * t : 2 * t + 2] = torch.tensor([[a, -b], [b, a]])
    generic = torch.randn(8, 8, generator=rng, dtype=torch.float64)
    assert commutes_with_rotations(commuting, planes)
    assert not commutes_with_rotations(generic, planes)
    assert toeplitz_share(p @ commuting, p).raw == pytest.approx(1)
    assert toeplitz_share(p @ generic, p).raw < 0.9
    assert (
        toeplitz_share((p + 1) @ commuting, p + 1).raw < 0.99
    )  # p -> p + const: look modulo rows and columns
    moved = lag_anova((p + 1) @ commuting, p + 1, columns=True)
    assert moved.share == pytest.approx(1)


def test_a_random_form_keeps_the_toeplitz_fraction_of_the_theory():
    frequencies = 10000.0 ** (-torch.arange(32, dtype=torch.float64) / 32)
    rng = torch.Generator().manual_seed(1)
    for n, expected in ((128, 0.36), (2048, 0.10)):
        angle = torch.outer(torch.arange(n, dtype=torch.float64), frequencies)
        p = torch.cat([angle.cos(), angle.sin()], 1)
        forms = torch.randn(24, 64, 64, generator=rng, dtype=torch.float64)
        raw = np.array([toeplitz_share(p @ m, p).raw for m in forms])
        assert abs(raw.mean() - expected) < 3.5 * raw.std() / math.sqrt(len(raw))


def test_effects_at_ten_thousand_positions_recover_planted_lags():
    n = 10_000
    angle = 0.01 * torch.arange(n, dtype=torch.float64)
    wave = torch.stack([angle.cos(), angle.sin()], 1)
    q = torch.cat([wave, torch.randn(n, 1, dtype=torch.float64)], 1)
    k = torch.cat(
        [wave, torch.ones(n, 1, dtype=torch.float64)], 1
    )  # a wave of the lag, and a random row effect
    for causal in (False, True):
        found = lag_anova(q, k, causal)
        assert found.share == pytest.approx(1, abs=1e-9)
        lags = found.lags - found.lags.mean()
        first = 0 if causal else 1 - n
        wave_of_lag = (0.01 * torch.arange(first, n, dtype=torch.float64)).cos()
        torch.testing.assert_close(lags, wave_of_lag - wave_of_lag.mean(), atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: lag_anova(torch.ones(1, 2), torch.ones(1, 2)), "at least two positions; got 1"),
        (lambda: toeplitz_share(torch.zeros(4, 2), torch.ones(4, 2)), "must not all be zero"),
        (lambda: toeplitz_share_of_matrix(torch.ones(2, 3)), "logits must be square"),
        (lambda: toeplitz_share_of_matrix(torch.ones(4), causal=True), r"logits must be square; got \(4,\)"),
        (lambda: commutes_with_rotations(torch.ones(0, 0), 0), r"form must have shape \(n, d\), n, d >= 1"),
        (lambda: toeplitz_share_of_matrix(torch.full((2, 2), math.nan)), "must be finite"),
        (lambda: commutes_with_rotations(torch.ones(4, 4), 3), "form must be 6 square"),
    ],
)
def test_wrong_input_is_refused_in_one_line(call, match):
    with pytest.raises(ConfigError, match=match):
        call()
