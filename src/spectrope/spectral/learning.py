"""Positions in the gradients of attention logits: by lag, by frequency and by head."""

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Complex, Float
from torch import Tensor

from spectrope.spectral.checks import angles, check, vector, wide


@dataclass(frozen=True, eq=False)
class GradientSpectrum:
    r"""A head's gradient with respect to :math:`M = W_Q^\top W_K`, by lag and by frequency.

    Args:
        lag_energy: :math:`\|\Gamma_\delta\|^2` for each lag, with shape (lags,).
        constant_energy: :math:`\|\hat\Gamma(0)\|^2`: the energy that reaches M under NoPE, T5 and ALiBi.
        transformed: :math:`\hat\Gamma(\theta_t)`: the part that reaches the t-th pair under RoPE, with shape
            (m, c, c).
    """

    lag_energy: Float[Tensor, " lags"]
    constant_energy: float
    transformed: Complex[Tensor, "m c c"]

    @cached_property
    def frequency_energy(self) -> Float[Tensor, " m"]:
        r""":math:`\|\hat\Gamma(\theta_t)\|^2`, with shape (m,)."""
        return (self.transformed.abs() ** 2).sum((1, 2))

    @cached_property
    def largest(self) -> Float[Tensor, " m"]:
        r""":math:`\sigma_1(\hat\Gamma(\theta_t))`, the rate at which a factorised head grows."""
        return torch.linalg.matrix_norm(self.transformed, 2)

    @property
    def positional_share(self) -> float:
        r""":math:`1 - \|\hat\Gamma(0)\|^2/(N\sum_\delta\|\Gamma_\delta\|^2)`, N lags: 0 if all agree."""
        return 1 - (self.constant_energy / (len(self.lag_energy) * self.lag_energy.sum())).item()

    @property
    def positional_null(self) -> float:
        """Its mean for independent gradients from lag to lag, of mean 0 and one variance: 1 - 1/N."""
        return 1 - 1 / len(self.lag_energy)

    @property
    def frequency_shares(self) -> Float[Tensor, " m"]:
        r""":math:`\|\hat\Gamma(\theta_t)\|^2 / (N\sum_\delta\|\Gamma_\delta\|^2)`, each at most 1."""
        return self.frequency_energy / (len(self.lag_energy) * self.lag_energy.sum())


def lag_gradients(
    logit_grad: Tensor, x: Tensor, causal: bool = True, x_keys: Tensor | None = None
) -> Float[Tensor, "h lags c c"]:
    r""":math:`\Gamma_\delta = \sum_{b,\,i-j=\delta} G_{bij}\, x_{bi}x_{bj}^\top`, the gradient with respect
    to M at each lag, for all heads of a layer.

    >>> gradients = lag_gradients(torch.ones(1, 2, 3, 3), torch.ones(1, 3, 1))
    >>> gradients.flatten(1)  # pairs at each lag, for two heads
    tensor([[3., 2., 1.],
            [3., 2., 1.]], dtype=torch.float64)

    Args:
        logit_grad: G, with shape (b, h, n, n).
        x: Inputs to the projections, with shape (b, n, c).
        causal: Whether to take lags from 0, not from -(n-1).
        x_keys: Inputs to the projection of keys where they are not x, with shape (b, n, c).

    Returns:
        With n or 2n-1 lags; :math:`O(hbn^2c^2)` operations, one product per lag.
    """
    y = x if x_keys is None else x_keys
    check(
        logit_grad.ndim == 4
        and x.ndim == 3
        and x.shape == y.shape
        and logit_grad.shape == (len(x), logit_grad.shape[1], x.shape[1], x.shape[1]),
        "logit_grad and x, and x_keys where given, must be (b, h, n, n) and (b, n, c); "
        f"got {tuple(logit_grad.shape)}, {tuple(x.shape)} and {tuple(y.shape)}.",
    )
    g, x, y = wide(logit_grad, "logit_grad"), wide(x, "x"), wide(y, "x_keys")
    heads, n, c = g.shape[1], *x.shape[1:]
    lags = range(0 if causal else 1 - n, n)
    out = x.new_empty(heads, len(lags), c, c)
    for row, lag in enumerate(lags):
        weights = g.diagonal(-lag, 2, 3).mT[..., None]
        queries, keys = x[:, max(lag, 0) : n + min(lag, 0)], y[:, max(-lag, 0) : n - max(lag, 0)]
        weighted = (weights * queries[:, :, None]).reshape(-1, heads * c)
        out[:, row] = (weighted.T @ keys.flatten(0, 1)).view(heads, c, c)
    return out


def gradient_spectrum(
    by_lag: Float[Tensor, "lags c c"], frequencies: Tensor, causal: bool = True
) -> GradientSpectrum:
    r"""Energies of :math:`\hat\Gamma(\theta) = \sum_\delta e^{-i\delta\theta}\Gamma_\delta` from the
    gradients by lag.

    >>> spectrum = gradient_spectrum(torch.ones(10, 3, 3), torch.tensor([1.0]))  # the same at every lag
    >>> f"{spectrum.positional_share:.3f}"
    '0.000'

    Args:
        by_lag: Of one head, from `lag_gradients`, with shape (lags, c, c).
        frequencies: θ in radians per position, with shape (m,).
        causal: Whether lags start from 0, not from -(n-1).

    Raises:
        ConfigError: If lags to both sides are an even number.
    """
    theta = angles(frequencies)
    odd = len(by_lag) % 2 == 1
    check(causal or odd, f"lags from -(n-1) to n-1 must be an odd number; got {len(by_lag)}.")
    first = 0 if causal else -(len(by_lag) // 2)
    lag = torch.arange(first, first + len(by_lag), dtype=torch.float64, device=by_lag.device)
    flat = wide(by_lag, "by_lag").flatten(1)
    phase = torch.outer(theta, lag)
    turned = torch.complex(phase.cos() @ flat, -(phase.sin() @ flat))
    return GradientSpectrum(
        lag_energy=(flat**2).sum(1),
        constant_energy=(flat.sum(0) ** 2).sum().item(),
        transformed=turned.view(-1, *by_lag.shape[1:]),
    )


def head_participation(energies: Tensor) -> float:
    r"""Participation ratio :math:`(\sum_h e_h)^2 / (H\sum_h e_h^2)` of H heads: 1/H for one head alone, 1 for
    equals.

    >>> head_participation(torch.tensor([0.0, 3.0, 0.0, 0.0]))
    0.25

    Args:
        energies: One per head, not negative, in any unit, with shape (H,).
    """
    e = vector(energies, "energies")
    check(not e.is_complex() and e.min().item() >= 0, "energies must be real and not negative.")
    check(e.max().item() > 0, "energies must not all be zero: no head takes part.")
    return (e.sum() ** 2 / (len(e) * (e**2).sum())).item()
