"""RoPE's exact form, its bands, how far it factorises, and what it depends on."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from spectrope.core.errors import ConfigError
from spectrope.spectral import (
    BandGram,
    band_gram,
    factorisation_residuals,
    position_factor,
    rope_logits,
    rotated,
)
from spectrope.spectral.product import logit_energy

SIZES = st.sampled_from([1, 2, 31, 63, 64, 65, 97])
SEEDS = st.integers(0, 2**32 - 1)


def head(*shape, seed):
    """Complex pairs of queries and keys."""
    rng = torch.Generator().manual_seed(seed)
    return torch.randn(2, *shape, generator=rng, dtype=torch.complex128)


def geometric(m):
    return 10000.0 ** (-torch.arange(m, dtype=torch.float64) / m)


def as_reals(z):
    return torch.view_as_real(z).flatten(1)


@given(n=SIZES, seed=SEEDS)
def test_the_exact_form_is_a_real_part_of_unimodular_products(n, seed):
    (q, k), theta = head(n, 3, seed=seed), geometric(3)
    i = torch.arange(n, dtype=torch.float64)
    terms = [
        torch.outer(q[:, t], k[:, t].conj()) * torch.exp(1j * (i[:, None] - i) * theta[t]) for t in range(3)
    ]
    logits = rope_logits(q, k, theta)
    torch.testing.assert_close(logits, sum(terms).real)
    torch.testing.assert_close(logits, as_reals(rotated(q, theta)) @ as_reals(rotated(k, theta)).T)


@given(n=SIZES, seed=SEEDS, causal=st.booleans())
def test_the_band_gram_equals_the_dense_one(n, seed, causal):
    q, k = head(n, 4, seed=seed)
    bands = torch.stack([torch.outer(q[:, t], k[:, t].conj()).real for t in range(4)])
    flat = (bands.tril() if causal else bands).flatten(1)
    found = band_gram(q, k, causal)
    torch.testing.assert_close(found.gram, flat @ flat.T)
    assert found.energy == pytest.approx(logit_energy(as_reals(q), as_reals(k), causal).item())
    assert found.shares.sum().item() == pytest.approx(1)
    assert found.grouped(2).gram[0, 1].item() == pytest.approx((flat[:2] @ flat[2:].T).sum().item(), abs=1e-9)


def test_bands_that_cancel_have_negative_shares():
    gram = BandGram(torch.tensor([[4.0, -3.0], [-3.0, 2.5]], dtype=torch.float64))
    torch.testing.assert_close(gram.shares, torch.tensor([2.0, -1.0], dtype=torch.float64))
    with pytest.raises(ConfigError, match="shares of no energy"):
        _ = BandGram(torch.tensor([[1.0, -1.0], [-1.0, 1.0]], dtype=torch.float64)).shares


@settings(max_examples=15)
@given(n=st.sampled_from([1, 2, 31, 63]), seed=SEEDS, causal=st.booleans(), bands=st.integers(1, 4))
def test_the_residual_is_that_of_least_squares_on_each_diagonal(n, seed, causal, bands):
    (q, k), theta = head(3, n, 4, seed=seed), geometric(4)
    label = torch.arange(4) * bands // 4
    found = factorisation_residuals(q, k, theta, bands=bands, causal=causal)
    for place in range(3):
        logits = rotated(q[place], theta) @ rotated(k[place], theta).mH
        content = [q[place][:, label == b] @ k[place][:, label == b].mH for b in range(bands)]
        left = total = 0.0
        for lag in range(0 if causal else 1 - n, n):
            y = logits.diagonal(-lag)
            design = torch.stack([g.diagonal(-lag) for g in content], 1)
            left += (y - design @ (torch.linalg.pinv(design) @ y)).abs().square().sum().item()
            total += y.abs().square().sum().item()
        assert found[place].item() == pytest.approx(left / total, abs=1e-8)


def test_eq_9_fails_content_and_position_do_not_factor():
    """q = (1, 1), k = (1, -1): the contents cancel, the logits do not."""
    q = torch.tensor([[1.0, 1.0]], dtype=torch.complex128).repeat(5, 1)
    k = torch.tensor([[1.0, -1.0]], dtype=torch.complex128).repeat(5, 1)
    theta = torch.tensor([1.0, 0.1], dtype=torch.float64)
    assert not (q @ k.mH).any()
    assert rope_logits(q, k, theta).abs().max() > 1
    assert factorisation_residuals(q, k, theta) == 1


def test_independent_content_leaves_the_theorys_residual():
    q, k = head(128, 32, seed=0)
    theta, lag = geometric(32), torch.arange(-127, 128, dtype=torch.float64)
    coherence = torch.exp(1j * torch.outer(lag, theta)).mean(1).abs() ** 2
    theory = 1 - (coherence * (128 - lag.abs())).sum().item() / 128**2
    assert theory == pytest.approx(0.642, abs=0.001)
    assert factorisation_residuals(q, k, theta).item() == pytest.approx(theory, abs=0.02)


def test_separable_content_and_enough_bands_leave_nothing():
    q, k = head(40, 4, seed=0)
    theta = geometric(4)
    weights = torch.tensor([2.0, 0.5, -1.0, 3.0], dtype=torch.complex128)
    amplitude = torch.randn(2, 40, 1, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    assert factorisation_residuals(*(amplitude * weights), theta) < 1e-12
    residuals = [factorisation_residuals(q, k, theta, bands=b) for b in (1, 2, 4)]
    assert residuals[0] > residuals[1] > residuals[2]
    assert residuals[2] < 1e-12
    assert factorisation_residuals(q[:, :1], k[:, :1], theta[:1]) < 1e-12  # a single frequency always factors
    assert factorisation_residuals(0 * q, k, theta).isnan()


@pytest.mark.parametrize(("dtype", "least", "most"), [(torch.float64, 0, 1e-10), (torch.float32, 1e-5, 2e-2)])
def test_eq_4_holds_as_well_as_the_angles_are_computed(dtype, least, most):
    """(R_i q)^T R_j k depends on i - j alone; at a shift of 10^6 float32 angles lose three to four digits."""
    q, k = head(64, 16, seed=0)
    theta = geometric(16).to(dtype)

    def logits(shift):
        position = torch.arange(64) + shift
        turn = torch.exp(1j * torch.outer(position.to(dtype), theta).double())
        return ((q * turn) @ (k * turn).mH).real

    error = (logits(1_000_000) - logits(0)).abs() / (q.norm(dim=1)[:, None] * k.norm(dim=1))
    assert least <= error.max().item() <= most


def test_content_times_distance_rank_is_zero_for_additive_and_2m_for_rope():
    """Prop. B.2, corrected: the rank of the interaction of content pairs with lags."""
    rng = torch.Generator().manual_seed(0)
    m, lags = 8, torch.arange(60, dtype=torch.float64)
    z = torch.complex(*torch.randn(2, 200, m, generator=rng, dtype=torch.float64))  # contents of 200 pairs
    by_rope = (z @ torch.exp(1j * torch.outer(torch.linspace(0.2, 3, m, dtype=torch.float64), lags))).real
    additive = z.real.sum(1, keepdim=True) + torch.randn(60, generator=rng, dtype=torch.float64)

    def interaction_rank(table):
        centred = table - table.mean(0) - table.mean(1, keepdim=True) + table.mean()
        values = torch.linalg.svdvals(centred)
        return int((values > 1e-10 * torch.linalg.svdvals(table)[0]).sum())

    assert interaction_rank(additive) == 0
    assert interaction_rank(by_rope) == 2 * m


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (
            lambda: rope_logits(torch.ones(3, 2), torch.ones(3, 2), torch.ones(3)),
            "must number 2, one per pair; got 3",
        ),
        (lambda: factorisation_residuals(*head(3, 2, seed=0), torch.ones(3)), "must number 2"),
        (lambda: factorisation_residuals(*head(3, 2, seed=0), torch.ones(2), bands=3), "between 1 and m = 2"),
        (lambda: band_gram(torch.ones(3, 2), torch.full((3, 2), math.inf)), "pairs must be finite"),
        (lambda: band_gram(torch.ones(3, 2), torch.ones(4, 2)), "must have one shape"),
    ],
)
def test_wrong_input_is_refused_in_one_line(call, match):
    with pytest.raises(ConfigError, match=match):
        call()


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("batch", [(), (2,), (2, 3)])
def test_a_position_factor_is_over_all_examples(batch, causal):
    q, k = torch.randn(2, *batch, 8, 1, dtype=torch.complex128)
    lags = torch.arange(0 if causal else -7, 8).double()
    factor = position_factor(q, k, torch.tensor([0.5]), causal)
    torch.testing.assert_close(factor, torch.exp(0.5j * lags))
