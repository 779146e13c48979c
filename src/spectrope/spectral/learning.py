"""How a positional encoding shapes learning: tangent kernels of the logits, and gradients by frequency."""

from dataclasses import dataclass

import torch
from jaxtyping import Complex, Float
from torch import Tensor

from spectrope.spectral.anova import ratio
from spectrope.spectral.checks import angles, check, factors, real_matrix, square, vector, wide
from spectrope.spectral.rope import Pairs, complex_pairs
from spectrope.spectral.significance import RandomisationTest, null_distribution, randomised


@dataclass(frozen=True, eq=False)
class TangentKernel:
    r"""The empirical neural tangent kernel Θ of logits: inner products of their gradients by W_Q and W_K.

    Args:
        matrix: Θ, positive semidefinite, in squared logit units per squared unit of weight, with shape (p,
            p).
    """

    matrix: Float[Tensor, "p p"]

    @property
    def eigenvalues(self) -> Float[Tensor, " p"]:
        """Decreasing: the rates at which modes of the logits learn."""
        return torch.linalg.eigvalsh(self.matrix).flip(0)

    def summary(self) -> "KernelSummary":
        """Largest eigenvalue, trace and effective rank."""
        return summarise(self.matrix)


@dataclass(frozen=True)
class KernelSummary:
    """Three figures of a positive semidefinite matrix.

    Args:
        largest: Its largest eigenvalue, in its units.
        trace: Sum of its eigenvalues.
        effective_rank: trace / largest; not a number for a zero matrix.
    """

    largest: float
    trace: float
    effective_rank: float


def summarise(matrix: Float[Tensor, "p p"]) -> KernelSummary:
    """The three figures of a positive semidefinite matrix."""
    values = torch.linalg.eigvalsh(matrix)
    largest, trace = values[-1].item(), values.sum().item()
    return KernelSummary(largest, trace, ratio(trace, largest, 0.0))


def tangent_kernel(
    x: Tensor,
    q: Tensor,
    k: Tensor,
    pairs_of_positions: Tensor,
    frequencies: Tensor | None = None,
    pairs: Pairs = "adjacent",
) -> TangentKernel:
    r"""Θ over pairs (i, j) for :math:`L_{ij} = \langle R_iW_Qx_i, R_jW_Kx_j\rangle`, with RoPE or without.

    .. math:: \Theta_{(ij),(i'j')} = \langle x_i, x_{i'}\rangle \langle R_{j-i}k_j, R_{j'-i'}k_{j'}\rangle
              + \langle x_j, x_{j'}\rangle \langle R_{i-j}q_i, R_{i'-j'}q_{i'}\rangle.

    For Gaussian weights its mean is the one without rotation, times :math:`C(\delta-\delta')` entry by entry,
    C the RoPE kernel: in the mean the spectrum contracts, and one draw deviates by about head_dim^{-1/2}.

    Args:
        x: Inputs to the projections, with shape (n, c).
        q: Queries W_Q x before rotation, with shape (n, d).
        k: Keys W_K x before rotation, with shape (n, d).
        pairs_of_positions: (i, j), with shape (p, 2).
        frequencies: Radians per position, with shape (d/2,); None for no rotation.
        pairs: How coordinates pair up.

    Raises:
        ConfigError: If the shapes do not fit, or a position does not exist.
    """
    x, (q, k) = real_matrix(x, "x"), factors(q, k)
    check(len(x) == len(q), f"x must have {len(q)} rows, as q and k; got {len(x)}.")
    i, j = _positions(pairs_of_positions, len(x))
    z_q, z_k = complex_pairs(q, pairs)[i], complex_pairs(k, pairs)[j]
    if frequencies is not None:
        theta = angles(frequencies)
        check(len(theta) == z_q.shape[1], f"frequencies must number {z_q.shape[1]}; got {len(theta)}.")
        turn = torch.exp(1j * torch.outer((i - j).to(torch.float64), theta))
        z_q, z_k = z_q * turn, z_k * turn.conj()
    by_query = (x[i] @ x[i].T) * (z_k @ z_k.mH).real
    by_key = (x[j] @ x[j].T) * (z_q @ z_q.mH).real
    return TangentKernel(by_query + by_key)


def _positions(pairs_of_positions: Tensor, n: int) -> tuple[Tensor, Tensor]:
    shape = tuple(pairs_of_positions.shape)
    check(
        len(shape) == 2 and shape[1] == 2 and shape[0] > 0, f"pairs_of_positions must be (p, 2); got {shape}."
    )
    low, high = (int(v) for v in pairs_of_positions.aminmax())
    check(low >= 0 and high < n, f"pairs_of_positions must lie in 0 ... {n - 1}; got {low} ... {high}.")
    return pairs_of_positions[:, 0], pairs_of_positions[:, 1]


def gauss_newton(kernel: TangentKernel, curvature: Tensor) -> Float[Tensor, "p p"]:
    r"""The Gauss–Newton matrix :math:`S^{1/2}\Theta S^{1/2}` in logit space: the curvature that training
    meets.

    Its nonzero eigenvalues are those of the Gauss–Newton approximation to the Hessian by the weights. That Θ
    contracts does not make it contract: measured, the ratio of the largest eigenvalues with RoPE to without
    runs from .65 to 7.5.

    Args:
        kernel: Θ over p logits.
        curvature: S, the loss's second derivative by these logits, positive semidefinite, with shape (p, p).
    """
    s = square(curvature, "curvature")
    check(
        s.shape == kernel.matrix.shape,
        f"curvature must be {tuple(kernel.matrix.shape)}; got {tuple(s.shape)}.",
    )
    values, vectors = torch.linalg.eigh(s)
    floor = -1e-10 * values.abs().max().item()
    check(values[0].item() >= floor, f"curvature must be positive semidefinite; got {values[0].item():.3g}.")
    root = (vectors * values.clamp(min=0).sqrt()) @ vectors.T
    return root @ kernel.matrix @ root


def softmax_curvature(pattern: Tensor) -> Float[Tensor, "n n"]:
    r"""Second derivative of a softmax's cross-entropy by its logits,
    :math:`\operatorname{diag}(a) - aa^\top`.

    Args:
        pattern: One row a of attention, with shape (n,).
    """
    a = vector(pattern, "pattern")
    return torch.diag(a) - torch.outer(a, a)


def logit_gradient(pattern: Tensor, pattern_gradient: Tensor) -> Float[Tensor, "b n n"]:
    r"""From the gradient g by the pattern A to that by the logits,
    :math:`G_{ij} = A_{ij}(g_{ij} - \sum_k A_{ik}g_{ik})`.

    Rows of G sum to 0, as softmax ignores row effects.

    Args:
        pattern: A of one head, with shape (b, n, n).
        pattern_gradient: g, with shape (b, n, n).
    """
    a, g = wide(pattern, "pattern"), wide(pattern_gradient, "pattern_gradient")
    return a * (g - (a * g).sum(-1, keepdim=True))


@dataclass(frozen=True, eq=False)
class GradientSpectrum:
    r"""A head's gradient by :math:`M = W_Q^\top W_K`, by lag and by frequency.

    Args:
        lag_energy: :math:`\|\Gamma_\delta\|^2` for each lag, with shape (lags,).
        constant_energy: :math:`\|\hat\Gamma(0)\|^2`: all that NoPE, T5 and ALiBi pass on to M.
        frequency_energy: :math:`\|\hat\Gamma(\theta_t)\|^2`, all that RoPE passes on to its t-th pair, with
            shape (m,).
        largest: :math:`\sigma_1(\hat\Gamma(\theta_t))`, the rate at which a factorised head grows, with shape
            (m,).
    """

    lag_energy: Float[Tensor, " lags"]
    constant_energy: float
    frequency_energy: Float[Tensor, " m"]
    largest: Float[Tensor, " m"]

    @property
    def positional_share(self) -> float:
        r""":math:`1 - \|\hat\Gamma(0)\|^2/(N\sum_\delta\|\Gamma_\delta\|^2)`, N lags: 0 if all agree."""
        return 1 - ratio(self.constant_energy, len(self.lag_energy) * self.lag_energy.sum().item(), 0.0)

    @property
    def positional_null(self) -> float:
        """Its mean for gradients that are independent from lag to lag, 1 - 1/N."""
        return 1 - 1 / len(self.lag_energy)

    @property
    def frequency_shares(self) -> Float[Tensor, " m"]:
        r""":math:`\|\hat\Gamma(\theta_t)\|^2 / (N\sum_\delta\|\Gamma_\delta\|^2)`, each at most 1."""
        return self.frequency_energy / (len(self.lag_energy) * self.lag_energy.sum())


def lag_gradients(logit_grad: Tensor, x: Tensor, causal: bool = True) -> Float[Tensor, "lags c c"]:
    r""":math:`\Gamma_\delta = \sum_{b,\,i-j=\delta} G_{bij}\, x_{bi}x_{bj}^\top`, the gradient by M at each
    lag.

    Args:
        logit_grad: G of one head, with shape (b, n, n).
        x: Inputs to the projections, with shape (b, n, c).
        causal: Whether to take lags from 0, not from -(n-1).

    Returns:
        With shape (n or 2n-1, c, c); :math:`O(bn^2c^2)` operations.
    """
    check(
        logit_grad.ndim == 3 and x.ndim == 3 and logit_grad.shape == (*x.shape[:2], x.shape[1]),
        "logit_grad and x must be (b, n, n) and (b, n, c); "
        f"got {tuple(logit_grad.shape)} and {tuple(x.shape)}.",
    )
    g, x = wide(logit_grad, "logit_grad"), wide(x, "x")
    n, c = x.shape[1:]
    lags = range(0 if causal else 1 - n, n)
    out = x.new_empty(len(lags), c, c)
    for row, lag in enumerate(lags):
        weights = g.diagonal(-lag, 1, 2)[..., None]
        queries, keys = x[:, max(lag, 0) : n + min(lag, 0)], x[:, max(-lag, 0) : n - max(lag, 0)]
        out[row] = (queries * weights).flatten(0, 1).T @ keys.flatten(0, 1)
    return out


def gradient_spectrum(
    by_lag: Float[Tensor, "lags c c"], frequencies: Tensor, causal: bool = True
) -> GradientSpectrum:
    r"""Energies of :math:`\hat\Gamma(\theta) = \sum_\delta e^{-i\delta\theta}\Gamma_\delta` from the
    gradients by lag.

    Args:
        by_lag: From `lag_gradients`.
        frequencies: θ in radians per position, with shape (m,).
        causal: Whether lags start from 0, not from -(n-1).
    """
    theta = angles(frequencies)
    first = 0 if causal else -(len(by_lag) // 2)
    lag = torch.arange(first, first + len(by_lag), dtype=torch.float64, device=by_lag.device)
    flat = by_lag.flatten(1)
    turned = _transformed(flat, torch.outer(theta, lag))
    c = by_lag.shape[1]
    return GradientSpectrum(
        lag_energy=(flat**2).sum(1),
        constant_energy=(flat.sum(0) ** 2).sum().item(),
        frequency_energy=(turned.abs() ** 2).sum(1),
        largest=torch.linalg.matrix_norm(turned.view(-1, c, c), 2),
    )


def _transformed(flat: Float[Tensor, "lags e"], phase: Float[Tensor, "m lags"]) -> Complex[Tensor, "m e"]:
    return torch.complex(phase.cos() @ flat, -(phase.sin() @ flat))


def frequency_share_test(
    by_lag: Float[Tensor, "lags c c"],
    frequencies: Tensor,
    causal: bool = True,
    draws: int = 199,
    seed: int = 0,
) -> RandomisationTest:
    """Test that gradients do not depend on the lag's order, by permuting lags.

    The statistic is the largest of the frequency shares; permuting lags keeps every gradient and the constant
    part, and destroys all rhythm.

    Args:
        by_lag: From `lag_gradients`.
        frequencies: Radians per position, with shape (m,).
        causal: Whether lags start from 0, not from -(n-1).
        draws: Permutations.
        seed: Of the permutations.
    """
    first = 0 if causal else -(len(by_lag) // 2)
    lag = torch.arange(first, first + len(by_lag), dtype=torch.float64, device=by_lag.device)
    phase = torch.outer(angles(frequencies), lag)
    gram = by_lag.flatten(1) @ by_lag.flatten(1).T
    total = len(lag) * gram.trace()
    check(total.item() > 0, "gradients must not all be zero: shares of no energy are undefined.")
    turns = torch.exp(-1j * phase)

    def largest(order: Tensor) -> float:
        shuffled = gram[order][:, order].to(turns.dtype)
        return ((turns @ shuffled) * turns.conj()).sum(1).real.max().item() / total.item()

    index = torch.arange(len(lag), device=by_lag.device)
    return randomised(largest(index), null_distribution(largest, index, draws, seed))


def head_participation(energies: Tensor) -> float:
    r"""Participation ratio :math:`(\sum_h e_h)^2 / (H\sum_h e_h^2)` of H heads: 1/H for one head alone, 1 for
    equals.

    Args:
        energies: One per head, not negative, in any unit, with shape (H,).
    """
    e = vector(energies, "energies")
    check(not e.is_complex() and e.min().item() >= 0, "energies must be real and not negative.")
    check(e.max().item() > 0, "energies must not all be zero: no head takes part.")
    return (e.sum() ** 2 / (len(e) * (e**2).sum())).item()
