"""Orders on spectra: majorisation, Ky Fan sums, fields of values."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from spectrope.spectral.checks import check, square, tensor, vector


@dataclass(frozen=True)
class Majorisation:
    r"""Whether :math:`x \prec y`, or weakly so.

    Args:
        holds: Whether every partial sum is at most that of y, within the tolerance.
        excess: Greatest excess of a sum of the k largest of x over that of y, in their units; for (strong)
            majorisation also the difference of the totals.
        scale: Sum of the moduli of y, to which the tolerance is relative.
    """

    holds: bool
    excess: float
    scale: float


def ky_fan_sums(x: Tensor) -> Float[Tensor, " n"]:
    """Sums of the 1, 2, ..., n largest entries of x.

    >>> ky_fan_sums(torch.tensor([1.0, 3.0, 2.0]))
    tensor([3., 5., 6.], dtype=torch.float64)
    """
    check(not tensor(x, "x").is_complex(), f"x must be real to be ordered; got {x.dtype}.")
    return vector(x, "x").sort(descending=True).values.cumsum(0)


def majorises(x: Tensor, y: Tensor, weak: bool = False, tolerance: float = 1e-10) -> Majorisation:
    r"""Test :math:`x \prec y`: sums of the k largest of x never exceed those of y, and the totals agree.

    For eigenvalues: every convex function summed over x is at most that over y. Weakly (:math:`\prec_w`, no
    claim on totals), for singular values: every unitarily invariant norm is at most as large.

    >>> majorises(torch.tensor([2.0, 2.0]), torch.tensor([3.0, 1.0])).holds
    True

    Args:
        x: Real, with shape (n,).
        y: Real, with shape (n,).
        weak: Whether the totals may differ.
        tolerance: Relative to the sum of the moduli of y.

    Raises:
        ConfigError: If the lengths differ.

    References:
        Inequalities: Theory of Majorization (Marshall, Olkin and Arnold, 2011), Ch. 1.
    """
    x, y = tensor(x, "x"), tensor(y, "y")
    check(x.shape == y.shape, f"x and y must have one length; got {tuple(x.shape)} and {tuple(y.shape)}.")
    above = ky_fan_sums(x) - ky_fan_sums(y)
    excess = above.max().item() if weak else max(above.max().item(), above[-1].abs().item())
    scale = vector(y, "y").abs().sum().item()
    return Majorisation(excess <= tolerance * scale, excess, scale)


def support_function(matrix: Tensor, directions: int = 32) -> Float[Tensor, " directions"]:
    r"""The support function of the field of values,
    :math:`h(\varphi) = \lambda_{\max}(\operatorname{Re} e^{-i\varphi}M)`.

    One field of values lies in another exactly if its support function is nowhere greater.

    >>> block = torch.tensor([[0.0, 1.0], [0.0, 0.0]])  # its field of values is a disc of radius 1/2
    >>> support_function(block, directions=3)
    tensor([0.5000, 0.5000, 0.5000], dtype=torch.float64)

    Args:
        matrix: With shape (n, n).
        directions: Equispaced angles φ from 0.

    Returns:
        In the units of the entries.

    References:
        Topics in Matrix Analysis (Horn and Johnson, 1991), Sec. 1.5.
    """
    matrix = square(matrix, "matrix").to(torch.complex128)
    phi = torch.arange(directions, dtype=torch.float64, device=matrix.device) * (2 * torch.pi / directions)
    turned = torch.exp(-1j * phi)[:, None, None] * matrix
    return torch.linalg.eigvalsh((turned + turned.mH) / 2)[:, -1]
