"""Contraction: what is a theorem holds to rounding, what is not is shown to fail."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spectrope.core.errors import ConfigError
from spectrope.spectral import (
    ToeplitzOperator,
    contracted_symbol,
    hadamard_contraction,
    head_contraction,
    ky_fan_sums,
    majorises,
    rope_kernel,
    rope_logits,
    schur_bounds,
    support_function,
    variance_ratio,
)

SIZES = st.sampled_from([1, 2, 3, 13, 31])
SEEDS = st.integers(0, 2**32 - 1)


def gaussian(n, seed, is_complex=False):
    rng = torch.Generator().manual_seed(seed)
    return torch.randn(n, n, generator=rng, dtype=torch.complex128 if is_complex else torch.float64)


def correlation(n, seed, is_complex=False):
    factor = torch.nn.functional.normalize(gaussian(n, seed, is_complex), dim=1)
    c = factor @ factor.mH
    return c.fill_diagonal_(1.0)


@given(n=SIZES, seed=SEEDS, is_complex=st.booleans(), hermitian=st.booleans())
def test_products_with_correlation_matrices_contract(n, seed, is_complex, hermitian):
    w, c = gaussian(n, seed, is_complex), correlation(n, seed + 1, is_complex)
    w = (w + w.mH) / 2 if hermitian else w
    found = hadamard_contraction(w, c)
    assert found.singular_values.holds
    assert found.field_excess <= 1e-10 * w.abs().sum().item()
    assert max(found.spectral_ratio, found.frobenius_ratio, found.nuclear_ratio) <= 1 + 1e-12
    if hermitian:
        assert found.eigenvalues is not None
        assert found.eigenvalues.holds
    else:
        assert (found.eigenvalues is None) == (n > 1 or is_complex)


@given(n=st.sampled_from([2, 3, 13, 31]), seed=SEEDS)
def test_the_variance_identity_and_schurs_bounds(n, seed):
    w, c = gaussian(n, seed), correlation(n, seed + 1)
    w = w @ w.T
    values, product = torch.linalg.eigvalsh(w), torch.linalg.eigvalsh(w * c)
    assert variance_ratio(w, c) == pytest.approx((product.var() / values.var()).item())
    low, high = schur_bounds(w, c)
    assert low - 1e-10 * high <= product[0].item()
    assert product[-1].item() <= high * (1 + 1e-12)


@given(n=st.sampled_from([1, 2, 63]), seed=SEEDS)
def test_the_symbol_of_the_product_is_a_mean_of_shifts(n, seed):
    operator = ToeplitzOperator(
        torch.randn(2 * n - 1, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    )
    frequencies = torch.tensor([1.0, 0.3, 0.01], dtype=torch.float64)
    theta = torch.linspace(-3, 3, 7, dtype=torch.float64)
    direct = operator.hadamard(rope_kernel(frequencies, n)).symbol(theta)
    torch.testing.assert_close(contracted_symbol(operator, frequencies, theta), direct, check_dtype=False)


def test_the_symbol_is_computed_in_float64_whatever_comes_in():
    lags = torch.zeros(40_001, dtype=torch.float64)
    lags[[0, -1]] = 1.0  # Of lags -20,000 and 20,000, whose cosine turns fastest.
    frequencies, theta = torch.tensor([0.3, 0.01]), torch.tensor([0.1, 1.7, 3.0])
    found = contracted_symbol(ToeplitzOperator(lags), frequencies, theta)
    wide = contracted_symbol(ToeplitzOperator(lags), frequencies.double(), theta.double())
    torch.testing.assert_close(found, wide, rtol=0, atol=1e-9)


def test_contraction_is_strict_exactly_if_a_correlation_below_one_meets_a_nonzero_entry():
    w = torch.tensor([[1.0, 0.5, 0.0], [0.5, 2.0, 0.0], [0.0, 0.0, 3.0]], dtype=torch.float64)
    c = torch.ones(3, 3, dtype=torch.float64)
    c[2, :2] = c[:2, 2] = 0.4
    assert hadamard_contraction(w, c).variance_ratio == 1
    c[0, 1] = c[1, 0] = 0.9
    assert hadamard_contraction(w, c).variance_ratio < 1


def test_a_single_frequency_changes_no_eigenvalue():
    w, phase = gaussian(20, 0), torch.exp(0.7j * torch.arange(20, dtype=torch.float64))
    w = w + w.T
    found = hadamard_contraction(w, torch.outer(phase, phase.conj()))
    assert found.variance_ratio == pytest.approx(1)
    assert found.eigenvalues.holds
    assert found.nuclear_ratio == pytest.approx(1)


def test_the_papers_proposition_fails_a_unimodular_toeplitz_matrix_expands():
    """Prop. B.3: none is positive definite; banded W with 2.3, 1, 1 and E_2 = i widens the symbol."""
    n = 200
    w = ToeplitzOperator.hermitian(torch.tensor([2.3, 1.0, 1.0, *[0] * (n - 3)], dtype=torch.float64))
    e = torch.ones(n, dtype=torch.complex128)
    e[2] = 1j
    product = w.hadamard(ToeplitzOperator.hermitian(e))
    theta = torch.linspace(-math.pi, math.pi, 20001, dtype=torch.float64)
    widths = [(s.max() - s.min()).item() for s in (w.symbol(theta), product.symbol(theta))]
    assert widths == pytest.approx([6.25, 7.04], abs=0.01)
    assert [s.min().item() for s in (w.symbol(theta), product.symbol(theta))] == pytest.approx(
        [0.05, -1.22], abs=0.01
    )
    assert not majorises(*(torch.linalg.eigvalsh(t.dense()) for t in (product, w))).holds
    minor = torch.linalg.det(ToeplitzOperator.hermitian(e[:2]).dense()).real.item()
    assert minor == pytest.approx(0, abs=1e-12)  # 1 - |e|^2: positive semidefinite at best


def test_the_papers_lemma_fails_equality_without_all_angles_zero():
    """Lemma B.1: sum w cos(i x + t_i) attains sum w also where i x = -t_i mod 2 pi for one x and all i."""
    x = torch.linspace(-math.pi, math.pi, 20001, dtype=torch.float64)
    assert (x.cos() + (2 * x).cos()).max().item() == pytest.approx(2)
    moved = (x + math.pi).cos() + (2 * (x + math.pi)).cos()  # theta_1 = pi, theta_2 = 2 pi = 0
    assert moved.max().item() == pytest.approx(2)
    peak_to_peak = 2 * (x.cos() + (2 * x).cos())
    assert (peak_to_peak.max() - peak_to_peak.min()).item() == pytest.approx(
        6.25, abs=0.01
    )  # not 4 sum w = 8


def test_the_spectral_radius_of_a_matrix_that_is_not_normal_may_grow():
    w = torch.tensor([[1.0, -1.0], [1.0, -1.0]], dtype=torch.float64)
    c = torch.tensor([[1.0, 0.6], [0.6, 1.0]], dtype=torch.float64)
    found = hadamard_contraction(w, c)
    assert found.radius_before == pytest.approx(0, abs=1e-7)
    assert found.radius_after == pytest.approx(math.sqrt(1 - 0.6**2))
    assert found.singular_values.holds


def test_multiplying_is_not_always_tighter_than_adding():
    """J + (C - J) = J o C: here an additive bias gives the same spectrum as the product."""
    n = 30
    c = rope_kernel(torch.tensor([1.0, 0.1], dtype=torch.float64), n).dense()
    ones = torch.ones(n, n, dtype=torch.float64)
    torch.testing.assert_close(ones + (c - ones), ones * c)


GEOMETRIC = 10000.0 ** (-torch.arange(16, dtype=torch.float64) / 16)


def contraction_of_head(q, k, frequencies=GEOMETRIC, causal=False):
    """Of complex pairs of queries and keys, with their rotation and without."""
    return head_contraction(rope_logits(q, k, frequencies), (q @ k.mH).real, causal)


def heads(*shape, seed=0):
    """Real and imaginary parts of variance 1."""
    rng = torch.Generator().manual_seed(seed)
    return torch.randn(2, *shape, generator=rng, dtype=torch.complex128) * 2**0.5


def test_isotropic_heads_do_not_contract_and_constant_ones_do():
    pairs = zip(*heads(20, 128, 16), strict=True)
    ratios = torch.stack([contraction_of_head(q, k).raw.spectral for q, k in pairs])
    assert ratios.mean().item() == pytest.approx(1, abs=0.05)
    same = torch.ones(128, 16, dtype=torch.complex128)
    found = contraction_of_head(same, same)
    assert found.raw.spectral.item() == pytest.approx(0.54, abs=0.01)
    assert found.gauge_fixed.spectral.isnan()  # equal keys: rows are constant, softmax sees nothing


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("scale", [1e-60, 1e30])
def test_ratios_do_not_depend_on_the_logits_scale(causal, scale):
    turned, plain = torch.randn(2, 30, 30, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = [head_contraction(turned * c, plain * c, causal) for c in (1, scale)]
    for gauge in ("raw", "gauge_fixed"):
        for name, value in vars(getattr(found[0], gauge)).items():
            scaled = getattr(getattr(found[1], gauge), name)
            torch.testing.assert_close(scaled, value, rtol=1e-9, atol=0)


def test_heads_that_turn_against_the_rotation_expand():
    """q_i = k_i = R_-i u: rotated logits are |u|^2 J, and the variance ratio exceeds 1."""
    n, u = 64, heads(1, 16)[0]
    back = u * torch.exp(-1j * torch.outer(torch.arange(n, dtype=torch.float64), GEOMETRIC))
    found = contraction_of_head(back, back)
    assert found.raw.spread > 1.5
    assert found.raw.nuclear.item() == pytest.approx(1)  # one trace, and both positive semidefinite
    energy = (u.abs() ** 2).sum()
    torch.testing.assert_close(rope_logits(back, back, GEOMETRIC), energy.expand(n, n))


def test_fixing_the_gauge_changes_what_a_common_part_seems_to_contract():
    q, k = heads(128, 16) + (1 + 1j)
    found = contraction_of_head(q, k)
    assert found.raw.spectral < 0.8 < found.gauge_fixed.spectral + 0.1
    assert found.gauge_fixed.spectral > found.raw.spectral + 0.1


@pytest.mark.parametrize("causal", [False, True])
def test_ratios_are_those_of_norms_head_by_head(causal):
    logits = torch.randn(2, 5, 30, 30, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = head_contraction(*logits, causal)
    means = logits.tril().sum(-1) / torch.arange(1, 31) if causal else logits.mean(-1)
    fixed = logits - means[..., None]
    for ratios, sides in ((found.raw, logits), (found.gauge_fixed, fixed)):
        a, b = (torch.linalg.svdvals(side.tril() if causal else side) for side in sides)
        torch.testing.assert_close(ratios.spectral, a[:, 0] / b[:, 0])
        torch.testing.assert_close(ratios.frobenius, a.norm(dim=1) / b.norm(dim=1))
        torch.testing.assert_close(ratios.nuclear, a.sum(1) / b.sum(1))


def test_logits_without_rotation_that_softmax_ignores_have_no_ratio():
    row = torch.randn(6, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = head_contraction(torch.eye(6, dtype=torch.float64), row.expand(6, 6))
    assert found.gauge_fixed.spectral.isnan()
    assert found.raw.spectral.isfinite()
    assert head_contraction(torch.eye(6), torch.zeros(6, 6)).raw.nuclear.isnan()


def test_majorisation_weak_and_strong():
    x, y = torch.tensor([1.0, 1.0, 1.0]), torch.tensor([3.0, 0.0, 0.0])
    assert majorises(x, y).holds
    assert not majorises(y, x).holds
    assert majorises(x / 2, y, weak=True).holds
    assert not majorises(x / 2, y).holds
    assert majorises(y, x).excess == 2
    assert torch.equal(
        ky_fan_sums(torch.tensor([1.0, 3.0, 2.0])), torch.tensor([3.0, 5.0, 6.0], dtype=torch.float64)
    )


def test_the_support_function_of_a_nilpotent_block_is_a_disc():
    block = torch.tensor([[0.0, 1.0], [0.0, 0.0]])
    torch.testing.assert_close(support_function(block), torch.full((32,), 0.5, dtype=torch.float64))


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: hadamard_contraction(torch.ones(2, 2), torch.ones(3, 3)), "must have one shape"),
        (lambda: hadamard_contraction(torch.zeros(2, 2), torch.ones(2, 2)), "w must not be zero"),
        (lambda: hadamard_contraction(torch.ones(2, 3), torch.ones(2, 3)), "w must be square"),
        (
            lambda: schur_bounds(-torch.ones(2, 2), torch.ones(2, 2)),
            "w must be Hermitian and positive semidefinite",
        ),
        (
            lambda: schur_bounds(torch.ones(2, 2), -torch.ones(2, 2)),
            "c must be Hermitian and positive semidefinite",
        ),
        (lambda: majorises(torch.ones(2), torch.ones(3)), "must have one length"),
        (lambda: ky_fan_sums(1j * torch.ones(2)), "x must be real to be ordered; got torch.complex64"),
        (lambda: head_contraction(torch.ones(3, 3), torch.ones(3, 3) * math.nan), "finite"),
        (lambda: head_contraction(torch.ones(3, 2), torch.ones(3, 2)), "logits must be square"),
    ],
)
def test_wrong_input_is_refused_in_one_line(call, match):
    with pytest.raises(ConfigError, match=match):
        call()
