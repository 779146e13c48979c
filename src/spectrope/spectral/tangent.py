"""Tangent kernels of attention logits with and without rotation, and Gauss–Newton curvature."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from spectrope.spectral.checks import angles, check, matrix, real_matrix, square, vector


@dataclass(frozen=True)
class KernelSummary:
    """Three summary values of a positive semidefinite matrix.

    Args:
        largest: Its largest eigenvalue, in its units.
        trace: Sum of its eigenvalues.
        effective_rank: trace / largest; not a number for a zero matrix.
    """

    largest: float
    trace: float
    effective_rank: float


def summarise(matrix: Float[Tensor, "p p"]) -> KernelSummary:
    """Largest eigenvalue, trace and effective rank of a positive semidefinite matrix.

    >>> summarise(torch.diag(torch.tensor([4.0, 2.0])))
    KernelSummary(largest=4.0, trace=6.0, effective_rank=1.5)

    Raises:
        ConfigError: If the matrix is not square, not symmetric or not finite.
    """
    values = torch.linalg.eigvalsh(_symmetric(matrix, "matrix"))
    largest, trace = values[-1].item(), values.sum().item()
    return KernelSummary(largest, trace, trace / largest if largest > 0 else float("nan"))


def tangent_kernel(
    x: Tensor,
    q: Tensor,
    k: Tensor,
    pairs_of_positions: Tensor,
    frequencies: Tensor | None = None,
    x_keys: Tensor | None = None,
) -> Float[Tensor, "p p"]:
    r"""The tangent kernel Θ of :math:`L_{ij} = \langle R_iW_Qx_i, R_jW_Kx_j\rangle`, with RoPE or without.

    Θ holds the inner products of their gradients by W_Q and W_K, in squared logit units per squared unit of
    weight; its eigenvalues are the rates at which modes of the logits learn.

    .. math:: \Theta_{(ij),(i'j')} = \langle x_i, x_{i'}\rangle \langle R_{j-i}k_j, R_{j'-i'}k_{j'}\rangle
              + \langle x_j, x_{j'}\rangle \langle R_{i-j}q_i, R_{i'-j'}q_{i'}\rangle.

    For Gaussian weights its mean is the one without rotation, times :math:`C(\delta-\delta')` entry by entry,
    C the RoPE kernel: on average the spectrum contracts, and a single draw deviates by about head_dim^{-1/2}.

    >>> x, q, k = torch.randn(5, 3), *torch.randn(2, 5, 4, dtype=torch.complex64)
    >>> tangent_kernel(x, q, k, torch.tensor([[4, 0], [4, 1]]), torch.rand(4)).shape
    torch.Size([2, 2])

    Args:
        x: Inputs to the projections, with shape (n, c).
        q: Coordinate pairs of queries W_Q x before rotation as complex numbers, with shape (n, m).
        k: Pairs of keys W_K x likewise.
        pairs_of_positions: (i, j), with shape (p, 2).
        frequencies: Radians per position, with shape (m,); None for no rotation.
        x_keys: Inputs to the projection of keys where they are not x, with shape (n, c).

    Raises:
        ConfigError: If the shapes do not fit, or a position does not exist.
    """
    x, q, k = real_matrix(x, "x"), matrix(q, "q"), matrix(k, "k")
    y = x if x_keys is None else real_matrix(x_keys, "x_keys")
    check(q.shape == k.shape, f"q and k must have one shape; got {tuple(q.shape)} and {tuple(k.shape)}.")
    for name, side in (("x", x), ("x_keys", y)):
        check(len(side) == len(q), f"{name} must have {len(q)} rows, as q and k; got {len(side)}.")
    i, j = _positions(pairs_of_positions, len(x))
    z_q, z_k = q[i], k[j]
    if frequencies is not None:
        theta = angles(frequencies)
        check(len(theta) == z_q.shape[1], f"frequencies must number {z_q.shape[1]}; got {len(theta)}.")
        turn = torch.exp(1j * torch.outer((i - j).to(torch.float64), theta))
        z_q, z_k = z_q * turn, z_k * turn.conj()
    by_query = (x[i] @ x[i].T) * (z_k @ z_k.mH).real
    by_key = (y[j] @ y[j].T) * (z_q @ z_q.mH).real
    return by_query + by_key


def _positions(pairs_of_positions: Tensor, n: int) -> tuple[Tensor, Tensor]:
    shape = tuple(pairs_of_positions.shape)
    check(
        len(shape) == 2 and shape[1] == 2 and shape[0] > 0, f"pairs_of_positions must be (p, 2); got {shape}."
    )
    low, high = (int(v) for v in pairs_of_positions.aminmax())
    check(low >= 0 and high < n, f"pairs_of_positions must lie in 0 ... {n - 1}; got {low} ... {high}.")
    return pairs_of_positions[:, 0], pairs_of_positions[:, 1]


def gauss_newton(kernel: Float[Tensor, "p p"], curvature: Tensor) -> Float[Tensor, "p p"]:
    r"""The Gauss–Newton matrix :math:`S^{1/2}\Theta S^{1/2}` in logit space: the curvature relevant for
    training.

    Its nonzero eigenvalues are those of the Gauss–Newton approximation of the Hessian with respect to the
    weights. A contraction of Θ does not imply one of this matrix: measured ratios of the largest eigenvalue
    with RoPE to that without range from 0.65 to 7.5.

    >>> gauss_newton(torch.tensor([[2.0, 1.0], [1.0, 2.0]]), torch.diag(torch.tensor([4.0, 0.0])))
    tensor([[8., 0.],
            [0., 0.]], dtype=torch.float64)

    Args:
        kernel: Θ over p logits, with shape (p, p).
        curvature: S, the loss's second derivative by these logits, positive semidefinite, with shape (p, p).

    Raises:
        ConfigError: If the shapes differ, one of them is not symmetric, or S has a negative eigenvalue.
    """
    theta, s = _symmetric(kernel, "kernel"), _symmetric(curvature, "curvature")
    check(s.shape == theta.shape, f"curvature must be {tuple(theta.shape)}; got {tuple(s.shape)}.")
    values, vectors = torch.linalg.eigh(s)
    floor = -1e-10 * values.abs().max().item()
    check(values[0].item() >= floor, f"curvature must be positive semidefinite; got {values[0].item():.3g}.")
    root = (vectors * values.clamp(min=0).sqrt()) @ vectors.T
    return root @ theta @ root


def _symmetric(x: Tensor, name: str) -> Tensor:
    """x as a float64 matrix that is symmetric up to rounding in its own precision."""
    x_wide = square(x, name)
    rounding = 100 * torch.finfo(x.dtype).eps if x.is_floating_point() else 0.0
    gap, size = (x_wide - x_wide.mT).abs().max().item(), x_wide.abs().max().item()
    check(not x.is_complex() and gap <= rounding * size, f"{name} must be real and symmetric.")
    return x_wide


def softmax_curvature(pattern: Tensor) -> Float[Tensor, "n n"]:
    r"""Second derivative of a softmax's cross-entropy by its logits,
    :math:`\operatorname{diag}(a) - aa^\top`.

    >>> softmax_curvature(torch.tensor([0.5, 0.5]))
    tensor([[ 0.2500, -0.2500],
            [-0.2500,  0.2500]], dtype=torch.float64)

    Args:
        pattern: One row a of attention, with shape (n,).
    """
    a = vector(pattern, "pattern")
    return torch.diag(a) - torch.outer(a, a)
