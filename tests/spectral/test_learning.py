"""Tangent kernels against automatic differentiation; gradients by lag and frequency."""

import math

import numpy as np
import pytest
import torch

from spectrope.core.errors import ConfigError
from spectrope.spectral import (
    gauss_newton,
    gradient_spectrum,
    head_participation,
    lag_gradients,
    majorises,
    rope_kernel,
    rope_logits,
    softmax_curvature,
    summarise,
    tangent_kernel,
)

FREQUENCIES = torch.tensor([1.0, 0.2, 0.05, 0.01], dtype=torch.float64)
GRID = torch.cartesian_prod(torch.arange(5), torch.arange(5))


def weights(seed, d=8, c=6):
    rng = torch.Generator().manual_seed(seed)
    x = torch.randn(5, c, generator=rng, dtype=torch.float64)
    w_q, w_k = torch.randn(2, d, c, generator=rng, dtype=torch.float64)
    return x, w_q, w_k


def as_pairs(x):
    return torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))


def rotate(x, angles):
    z = torch.view_as_complex(x.view(len(x), -1, 2)) * torch.exp(1j * angles)
    return torch.view_as_real(z).flatten(1)


@pytest.mark.parametrize("own_keys", [False, True])
@pytest.mark.parametrize("frequencies", [None, FREQUENCIES])
def test_the_tangent_kernel_is_that_of_automatic_differentiation(frequencies, own_keys):
    x, w_q, w_k = weights(0)
    y = weights(1)[0] if own_keys else x
    angles = torch.outer(torch.arange(5.0, dtype=torch.float64), FREQUENCIES * (frequencies is not None))

    def logits(w_q, w_k):
        return (rotate(x @ w_q.T, angles) @ rotate(y @ w_k.T, angles).T).flatten()

    jacobian = torch.cat([j.flatten(1) for j in torch.autograd.functional.jacobian(logits, (w_q, w_k))], 1)
    q, k = as_pairs(x @ w_q.T), as_pairs(y @ w_k.T)
    found = tangent_kernel(x, q, k, GRID, frequencies, x_keys=y if own_keys else None)
    torch.testing.assert_close(found, jacobian @ jacobian.T)
    summary = summarise(found)
    assert summary.trace == pytest.approx((jacobian**2).sum().item())
    assert summary.largest == pytest.approx(torch.linalg.matrix_norm(found, 2).item())
    assert summary.effective_rank == pytest.approx(summary.trace / summary.largest)


def test_the_mean_kernel_under_gaussian_weights_is_a_hadamard_product_and_contracts():
    """P1: E Theta_RoPE = Theta_NoPE o C(delta - delta'), so its spectrum is majorised."""
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(5, 3, generator=rng, dtype=torch.float64)
    with_rope, without = torch.zeros(2, 25, 25, dtype=torch.float64)
    for _ in range(1000):
        q, k = as_pairs(x @ torch.randn(2, 3, 8, generator=rng, dtype=torch.float64))
        with_rope += tangent_kernel(x, q, k, GRID, FREQUENCIES) / 1000
        without += tangent_kernel(x, q, k, GRID) / 1000
    delta = GRID[:, 0] - GRID[:, 1]
    c = rope_kernel(FREQUENCIES, 9).dense()[delta[:, None] + 4, delta + 4]
    expected = without * c
    assert ((with_rope - expected).norm() / expected.norm()).item() < 0.05
    assert majorises(torch.linalg.eigvalsh(expected), torch.linalg.eigvalsh(without)).holds
    assert summarise(expected).largest < summarise(without).largest


def test_the_gauss_newton_matrix_has_the_eigenvalues_of_the_loss_and_need_not_contract():
    x, w_q, w_k = weights(1)
    q, k = as_pairs(x @ w_q.T), as_pairs(x @ w_k.T)
    row = torch.cartesian_prod(torch.tensor([4]), torch.arange(5))
    pattern = rope_logits(q, k, FREQUENCIES)[4].softmax(0)
    kernel, curvature = tangent_kernel(x, q, k, row, FREQUENCIES), softmax_curvature(pattern)
    hessian = torch.autograd.functional.hessian(lambda a: -a.log_softmax(0)[0], pattern.log())
    torch.testing.assert_close(curvature, hessian)
    found = torch.linalg.eigvalsh(gauss_newton(kernel, curvature))
    expected = torch.linalg.eigvals(kernel @ curvature).real.sort().values
    torch.testing.assert_close(found, expected, atol=1e-9, rtol=1e-9)
    ratios = []
    for seed in range(40):
        x, w_q, w_k = weights(seed)
        q, k = as_pairs(x @ w_q.T), as_pairs(x @ w_k.T)
        sides = []
        for theta in (FREQUENCIES, None):
            logits = rope_logits(q, k, FREQUENCIES if theta is not None else 0 * FREQUENCIES)[4] / 8
            gn = gauss_newton(tangent_kernel(x, q, k, row, theta), softmax_curvature(logits.softmax(0)))
            sides.append(summarise(gn).largest)
        ratios.append(sides[0] / sides[1])
    assert min(ratios) < 1 < max(ratios)  # P4


@pytest.mark.parametrize("own_keys", [False, True])
@pytest.mark.parametrize("causal", [False, True])
def test_gradients_by_lag_and_frequency_are_those_by_the_form(causal, own_keys):
    """The gradient by M at a frequency, by automatic differentiation of x_i^T M x_j cos(delta theta)."""
    rng = torch.Generator().manual_seed(0)
    x, g = (
        torch.randn(3, 7, 4, generator=rng, dtype=torch.float64),
        torch.randn(3, 2, 7, 7, generator=rng, dtype=torch.float64),
    )
    g = g.tril() if causal else g
    y = torch.randn(3, 7, 4, generator=rng, dtype=torch.float64) if own_keys else x
    g, by_lag = g[:, 1], lag_gradients(g, x, causal, y if own_keys else None)[1]
    spectrum = gradient_spectrum(by_lag, FREQUENCIES, causal)
    i = torch.arange(7, dtype=torch.float64)
    for t, theta in enumerate(FREQUENCIES):
        parts = []
        for wave in (torch.cos, torch.sin):
            form = torch.zeros(4, 4, dtype=torch.float64, requires_grad=True)
            logits = (x @ form @ y.mT) * wave((i[:, None] - i) * theta)
            (part,) = torch.autograd.grad((g * logits).sum(), form)
            parts.append(part)
        assert spectrum.frequency_energy[t].item() == pytest.approx(sum((p**2).sum().item() for p in parts))
        norm = torch.linalg.matrix_norm(torch.complex(parts[0], -parts[1]), 2)
        assert spectrum.largest[t].item() == pytest.approx(norm.item())
    constant = torch.einsum("bij,bic,bjd->cd", g, x, y)
    assert spectrum.constant_energy == pytest.approx((constant**2).sum().item())
    assert spectrum.lag_energy.shape == (7 if causal else 13,)
    assert (spectrum.frequency_shares <= 1).all()


def test_positional_shares_are_zero_without_and_one_minus_one_over_n_for_noise():
    same = torch.ones(10, 3, 3, dtype=torch.float64)
    assert gradient_spectrum(same, FREQUENCIES).positional_share == pytest.approx(0)
    rng = torch.Generator().manual_seed(0)
    shares = [
        gradient_spectrum(
            torch.randn(10, 3, 3, generator=rng, dtype=torch.float64), FREQUENCIES
        ).positional_share
        for _ in range(200)
    ]
    assert np.mean(shares) == pytest.approx(gradient_spectrum(same, FREQUENCIES).positional_null, abs=0.01)


def test_learning_rates_of_modes_follow_the_kernel_on_the_lag_window():
    """P2: with orthonormal tokens the modes of lag targets learn at rates proportional to those of C."""
    n, d = 16, 256
    frequencies = 10000.0 ** (-torch.arange(d // 2, dtype=torch.float64) / (d // 2))
    x = torch.ones(n, 1, dtype=torch.float64)  # one token throughout
    rng = torch.Generator().manual_seed(0)
    q, k = torch.randn(2, 1, d // 2, generator=rng, dtype=torch.complex128).expand(2, n, d // 2)
    pairs = torch.stack([torch.arange(n), torch.zeros(n, dtype=torch.long)], 1)
    rates = torch.linalg.eigvalsh(tangent_kernel(x, q, k, pairs, frequencies)).flip(0)[:5]
    modes = torch.linalg.eigvalsh(rope_kernel(frequencies, n).dense()).flip(0)[:5]
    torch.testing.assert_close(rates / rates[0], modes / modes[0], atol=0.02, rtol=0.25)


def test_participation_counts_heads():
    assert head_participation(torch.tensor([0.0, 3.0, 0.0, 0.0])) == 1 / 4
    assert head_participation(torch.full((8,), 0.3)) == pytest.approx(1)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda x: tangent_kernel(x[:3], x, x, GRID[:1]), "x must have 4 rows"),
        (lambda x: tangent_kernel(x, x, x, GRID[:1], x_keys=x[:3]), "x_keys must have 4 rows"),
        (lambda x: tangent_kernel(x, x, x, GRID), "must lie in 0 ... 3; got 0 ... 4"),
        (lambda x: tangent_kernel(x, x, x, GRID[:, :1]), r"must be \(p, 2\)"),
        (lambda x: tangent_kernel(x, x, x, GRID[:1], torch.ones(1)), "must number 4; got 1"),
        (lambda x: gauss_newton(torch.eye(2), torch.eye(3)), r"curvature must be \(2, 2\)"),
        (lambda x: gauss_newton(torch.eye(2), -torch.eye(2)), "positive semidefinite; got -1"),
        (lambda x: lag_gradients(torch.ones(1, 1, 3, 3), x[None]), "got \\(1, 1, 3, 3\\), \\(1, 4, 4\\)"),
        (lambda x: lag_gradients(torch.full((1, 1, 4, 4), math.nan), x[None]), "logit_grad must be finite"),
        (lambda x: head_participation(torch.zeros(3)), "no head takes part"),
        (lambda x: head_participation(torch.tensor([1.0, -1.0])), "not negative"),
    ],
)
def test_wrong_input_is_refused_in_one_line(call, match):
    with pytest.raises(ConfigError, match=match):
        call(torch.ones(4, 4))


def test_queries_and_keys_of_a_tangent_kernel_have_one_shape():
    x, q = torch.randn(5, 3), torch.randn(5, 4, dtype=torch.complex64)
    for k in (torch.randn(9, 4, dtype=torch.complex64), torch.randn(5, 2, dtype=torch.complex64)):
        with pytest.raises(ConfigError, match="q and k must have one shape"):
            tangent_kernel(x, q, k, GRID)
