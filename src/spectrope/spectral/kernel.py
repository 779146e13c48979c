"""The RoPE kernel, the mean of cosines over frequencies, and its spectrum at any length."""

import numpy as np
import scipy.special
import torch
from jaxtyping import Float
from torch import Tensor

from spectrope.spectral.checks import angles, check
from spectrope.spectral.operator import ToeplitzOperator


def rope_kernel(frequencies: Tensor, n: int) -> ToeplitzOperator:
    r"""The correlation matrix :math:`C_{ij} = \frac1m \sum_t \cos((i-j)\theta_t)`, positive semidefinite.

    Its entries are almost periodic in the lag, and its rank is at most 2m. It has no symbol, so that Szegő's
    theorem does not apply.

    >>> kernel = rope_kernel(torch.tensor([1.0, 2.0, 3.0]), 100).dense()
    >>> kernel[0, 0].item(), torch.linalg.matrix_rank(kernel, hermitian=True).item()
    (1.0, 6)

    Args:
        frequencies: θ in radians per position, with shape (m,).
        n: Number of positions.

    Raises:
        ConfigError: If n is below 1.
    """
    theta = angles(frequencies)
    check(n >= 1, f"n must be at least 1; got {n}.")
    lag = torch.arange(n, dtype=torch.float64, device=theta.device)
    return ToeplitzOperator.hermitian(torch.outer(lag, theta).cos().mean(1))


def rope_kernel_eigenvalues(frequencies: Tensor, n: int) -> Float[Tensor, " r"]:
    r"""The possibly nonzero eigenvalues of the RoPE kernel, in O(m³) at any length.

    With positions centred, :math:`C = \frac1m(AA^\top + BB^\top)`, columns :math:`\cos x\theta_t` and
    :math:`\sin x\theta_t` being orthogonal to each other; so they are the eigenvalues of two m × m Gram
    matrices, whose entries are half the sum and half the difference of Dirichlet kernels
    :math:`\sin(n\alpha/2)/\sin(\alpha/2)` at :math:`\theta_t - \theta_s` and :math:`\theta_t + \theta_s`.
    For one frequency: :math:`(n \pm |\sin n\theta/\sin\theta|)/2`. Errors are about 1e-16 n.

    >>> frequencies = 10000.0 ** (-torch.arange(8) / 8)
    >>> len(rope_kernel_eigenvalues(frequencies, 1_000_000))
    16

    Args:
        frequencies: θ in radians per position, with shape (m,).
        n: Number of positions.

    Returns:
        min(2m, n) eigenvalues, decreasing.
    """
    theta = angles(frequencies)
    check(n >= 1, f"n must be at least 1; got {n}.")
    near, far = dirichlet(theta[:, None] - theta, n), dirichlet(theta[:, None] + theta, n)
    grams = torch.stack([near + far, near - far]) / (2 * len(theta))
    values = torch.linalg.eigvalsh(grams).flatten().clamp(min=0)
    return values.sort(descending=True).values[:n]


def dirichlet(angle: Tensor, n: int) -> Tensor:
    r"""Dirichlet's kernel :math:`\sum_x \cos(x\alpha) = \sin(n\alpha/2)/\sin(\alpha/2)`, n centred x."""
    values = scipy.special.diric(angle.cpu().numpy(), n)
    return n * torch.from_numpy(np.asarray(values)).to(angle)
