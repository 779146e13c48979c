"""How far RoPE's logits are from content times position: the residual of L = G ∘ T."""

from dataclasses import dataclass

import torch
from jaxtyping import Complex, Float
from torch import Tensor

from spectrope.spectral.checks import angles, check, factors
from spectrope.spectral.fourier import fast_length, fft, ifft
from spectrope.spectral.rope import Pairs, band_labels, complex_pairs


@dataclass(frozen=True, eq=False)
class Factorisation:
    r"""The best fit :math:`L_c \approx \sum_b G_b \circ T_b` of complex logits, :math:`T_b` Toeplitz.

    Args:
        residual: :math:`\rho_F = \|L_c - \sum_b G_b\circ T_b\|^2/\|L_c\|^2`, a fraction; 0 where content and
            position separate.
        lags: The lags of each :math:`T_b`, from -(n-1), or 0 if causal, to n-1, with shape (lags, bands).
        energy: :math:`\|L_c\|^2`, in squared logit units.
    """

    residual: float
    lags: Complex[Tensor, "lags bands"]
    energy: float


def factorisation_residual(
    q: Tensor,
    k: Tensor,
    frequencies: Tensor,
    *,
    bands: int = 1,
    causal: bool = False,
    pairs: Pairs = "adjacent",
) -> Factorisation:
    r"""Fit RoPE's complex logits by one Toeplitz factor on each band's content, exactly.

    :math:`L_c = \sum_t (q^t k^{t*})\circ E_t`, and :math:`G_b = \sum_{t\in b} q^t k^{t*}` is what the band
    would give without positions. Each diagonal δ is its own least-squares problem; all it needs are the
    products :math:`P_{ts}(\delta) = \sum_{i-j=\delta} (q^t_i\bar k^t_j)\,\overline{(q^s_i\bar k^s_j)}`,
    cross-correlations of :math:`q^t\bar q^s` and :math:`k^t\bar k^s`: :math:`O(m^2 n\log n)` in all. For
    independent content and one band the residual tends to the mean over allowed pairs of
    :math:`1 - |\operatorname{mean}_t e^{i\delta\theta_t}|^2`; with as many bands as frequencies it is 0.

    Args:
        q: Queries before rotation, with shape (n, 2m).
        k: Keys before rotation, with shape (n, 2m).
        frequencies: θ in radians per position, with shape (m,).
        bands: Contiguous bands with a factor each, from 1 to m.
        causal: Whether query i sees keys j <= i alone.
        pairs: How coordinates pair up.

    Raises:
        ConfigError: If the logits are all zero.
    """
    q, k = factors(q, k)
    theta = angles(frequencies)
    z_q, z_k = complex_pairs(q, pairs), complex_pairs(k, pairs)
    check(
        len(theta) == z_q.shape[1], f"frequencies must number {z_q.shape[1]}, one per pair; got {len(theta)}."
    )
    label = band_labels(len(theta), bands).tolist()
    gram, target, energy = _normal_equations(z_q, z_k, theta, label, bands, causal)
    check(energy > 0, "logits must not all be zero: shares of no energy are undefined.")
    fit = torch.linalg.pinv(gram, hermitian=True, rtol=1e-10) @ target[..., None]
    explained = (target.conj() * fit[..., 0]).real.sum().item()
    return Factorisation(max(0.0, 1 - explained / energy), fit[..., 0], energy)


def _normal_equations(
    z_q: Complex[Tensor, "n m"],
    z_k: Complex[Tensor, "n m"],
    theta: Float[Tensor, " m"],
    label: list[int],
    bands: int,
    causal: bool,
) -> tuple[Complex[Tensor, "lags bands bands"], Complex[Tensor, "lags bands"], float]:
    """Per lag: the Gram matrix of the bands' contents and their products with the logits; and the energy."""
    lag = torch.arange(0 if causal else 1 - len(z_q), len(z_q), dtype=torch.float64, device=z_q.device)
    phase = torch.exp(1j * torch.outer(theta, lag))
    gram = phase.new_zeros(len(lag), bands, bands)
    target, energy = phase.new_zeros(len(lag), bands), 0.0
    for t in range(len(theta)):
        for s in range(t + 1):
            product = _correlation(z_q[:, t] * z_q[:, s].conj(), z_k[:, t] * z_k[:, s].conj(), causal)
            for a, b, p in ((t, s, product), (s, t, product.conj()))[: 1 if t == s else 2]:
                gram[:, label[b], label[a]] += p
                target[:, label[b]] += p * phase[a]
                energy += (p * phase[a] * phase[b].conj()).real.sum().item()
    return gram, target, energy


def _correlation(
    u: Complex[Tensor, " n"], v: Complex[Tensor, " n"], causal: bool
) -> Complex[Tensor, " lags"]:
    """Sums of u_i conj(v_j) over i - j = δ, from δ = -(n-1), or 0 if causal."""
    n = len(u)
    size = fast_length(2 * n - 1)
    sums = ifft(fft(u, size) * fft(v, size).conj(), size)
    return sums[:n] if causal else torch.cat([sums[size - n + 1 :], sums[:n]])
