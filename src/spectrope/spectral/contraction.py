"""Spectral contraction: bounds for Hadamard products with correlation matrices, and measurements on heads."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Inexact
from torch import Tensor

from spectrope.spectral.checks import angles, check, is_hermitian, square_pair, wide
from spectrope.spectral.logits import masked, ratio, row_centred
from spectrope.spectral.majorisation import Majorisation, majorises, support_function
from spectrope.spectral.operator import ToeplitzOperator


@dataclass(frozen=True)
class HadamardContraction:
    r"""Comparison of W ∘ C with W; ratios are those of W ∘ C to W.

    Args:
        eigenvalues: Test of :math:`\lambda(W\circ C) \prec \lambda(W)`; None unless W and W ∘ C are
            Hermitian.
        singular_values: Test of :math:`\sigma(W\circ C) \prec_w \sigma(W)`.
        field_excess: Greatest excess, over 32 directions, of the support function of F(W ∘ C) over that of
            F(W), in the units of W: not positive where the first field of values lies in the second.
        variance_ratio: Ratio of the variances of eigenvalues; None unless W and W ∘ C are Hermitian.
        spectral_ratio: Of spectral norms.
        frobenius_ratio: Of Frobenius norms.
        nuclear_ratio: Of sums of singular values.
        radius_before: Spectral radius of W, in its units.
        radius_after: Spectral radius of W ∘ C, which may be greater for a W that is not normal.
    """

    eigenvalues: Majorisation | None
    singular_values: Majorisation
    field_excess: float
    variance_ratio: float | None
    spectral_ratio: float
    frobenius_ratio: float
    nuclear_ratio: float
    radius_before: float
    radius_after: float


def hadamard_contraction(w: Tensor, c: Tensor) -> HadamardContraction:
    r"""Measure how the spectrum of W changes under the entrywise product with C.

    For a correlation matrix C (positive semidefinite, unit diagonal) :math:`W \mapsto W\circ C` is
    completely positive and keeps trace and identity; for the RoPE kernel it is a mean of unitary conjugates.
    Therefore the eigenvalues of W majorise those of :math:`W\circ C` for Hermitian W, the singular values do
    so weakly for any W, and the field of values shrinks. For any other C these are empirical questions. A
    unimodular Hermitian C preserves trace and variance and may expand the spectrum.

    >>> w, c = torch.tensor([[1.0, -1.0], [1.0, -1.0]]), torch.tensor([[1.0, 0.6], [0.6, 1.0]])
    >>> found = hadamard_contraction(w, c)  # not Hermitian: norms contract, the spectral radius grows from 0
    >>> found.singular_values.holds, f"{found.radius_after:.3f}"
    (True, '0.800')

    Args:
        w: With shape (n, n).
        c: With shape (n, n).

    Raises:
        ConfigError: If the shapes differ, or W is zero.

    References:
        On majorization and Schur products (Bapat and Sunder, 1985);
        Ando, Horn and Johnson (1987), The singular values of a Hadamard product.
    """
    w, c = square_pair(w, c, ("w", "c"))
    check(bool(w.any()), "w must not be zero: ratios to nothing are undefined.")
    product = w * c
    before, after = torch.linalg.svdvals(w), torch.linalg.svdvals(product)
    hermitian = is_hermitian(w) and is_hermitian(product)
    return HadamardContraction(
        eigenvalues=majorises(*map(torch.linalg.eigvalsh, (product, w))) if hermitian else None,
        singular_values=majorises(after, before, weak=True),
        field_excess=(support_function(product) - support_function(w)).max().item(),
        variance_ratio=variance_ratio(w, c) if hermitian else None,
        spectral_ratio=(after[0] / before[0]).item(),
        frobenius_ratio=(after.norm() / before.norm()).item(),
        nuclear_ratio=(after.sum() / before.sum()).item(),
        radius_before=torch.linalg.eigvals(w).abs().max().item(),
        radius_after=torch.linalg.eigvals(product).abs().max().item(),
    )


def variance_ratio(w: Tensor, c: Tensor) -> float:
    r"""Ratio of the eigenvalues' variances of W ∘ C and W, both Hermitian, without computing eigenvalues.

    .. math:: \frac{\sum|W_{ij}|^2|C_{ij}|^2 - (\operatorname{tr} W\circ C)^2/n}
                   {\sum|W_{ij}|^2 - (\operatorname{tr} W)^2/n}

    NaN if W is a multiple of the identity. Only the shapes are checked.

    >>> w, c = torch.tensor([[1.0, 2.0], [2.0, 1.0]]), torch.tensor([[1.0, 0.5], [0.5, 1.0]])
    >>> variance_ratio(w, c)  # eigenvalues -1 and 3 become 0 and 2
    0.25
    """
    w, c = square_pair(w, c, ("w", "c"))
    return ratio(_spread(w * c), _spread(w), (w.abs() ** 2).sum()).item()


def _spread(matrices: Inexact[Tensor, "*b n n"]) -> Float[Tensor, "*b"]:
    r"""Squared distance :math:`\|M\|_F^2 - |\operatorname{tr} M|^2/n` to the multiples of the identity.

    For a Hermitian matrix it is n times the variance of its eigenvalues.
    """
    trace = matrices.diagonal(dim1=-2, dim2=-1).sum(-1)
    return (matrices.abs() ** 2).sum((-1, -2)) - trace.abs() ** 2 / matrices.shape[-1]


def schur_bounds(w: Tensor, c: Tensor) -> tuple[float, float]:
    r"""Bounds below and above all eigenvalues of W ∘ C for positive semidefinite W and C.

    :math:`\lambda_{\max} \le \min(\lambda_{\max}(W) \max C_{ii}, \max W_{ii}\,\lambda_{\max}(C))`, and the
    least eigenvalue likewise from below; units of W times those of C.

    >>> low, high = schur_bounds(torch.tensor([[2.0, 1.0], [1.0, 2.0]]), torch.ones(2, 2))
    >>> f"{low:.3f} {high:.3f}"  # the eigenvalues themselves, 1 and 3
    '1.000 3.000'

    Raises:
        ConfigError: If the shapes differ, or one of them is not positive semidefinite up to rounding.

    References:
        Bemerkungen zur Theorie der beschränkten Bilinearformen (Schur, 1911), Satz VII.
    """
    w, c = square_pair(w, c, ("w", "c"))
    ends = {}
    for name, matrix in (("w", w), ("c", c)):
        values = torch.linalg.eigvalsh(matrix)
        rounding = 1e-12 * values.abs().max().item()
        semidefinite = is_hermitian(matrix) and values[0].item() >= -rounding
        check(semidefinite, f"{name} must be Hermitian and positive semidefinite.")
        ends[name] = (max(values[0].item(), 0.0), values[-1].item())
    on_w, on_c = w.diagonal().real, c.diagonal().real
    low = max(ends["w"][0] * on_c.min().item(), on_w.min().item() * ends["c"][0])
    high = min(ends["w"][1] * on_c.max().item(), on_w.max().item() * ends["c"][1])
    return low, high


def contracted_symbol(operator: ToeplitzOperator, frequencies: Tensor, theta: Tensor) -> Tensor:
    r"""Symbol of T ∘ C for the RoPE kernel C: the mean of shifted copies of the symbol f of T.

    :math:`\tfrac12 \operatorname{mean}_t [f(\theta + \theta_t) + f(\theta - \theta_t)]`; a mean never leaves
    the range of f. (The symbol of T ∘ C is what `operator.hadamard(rope_kernel(...)).symbol` sums directly.)

    >>> cosine = ToeplitzOperator(torch.tensor([1.0, 0.0, 1.0]))  # its symbol is 2 cos(θ)
    >>> f"{contracted_symbol(cosine, torch.tensor([torch.pi / 3]), torch.zeros(1)).item():.6f}"
    '1.000000'

    Args:
        operator: T.
        frequencies: Radians per position, with shape (m,).
        theta: Angles, with shape (k,).
    """
    turns = angles(frequencies)
    shifted = theta.to(torch.float64)[:, None] + torch.cat([turns, -turns])
    return operator.symbol(shifted).mean(1)


@dataclass(frozen=True, eq=False)
class NormRatios:
    """Ratios of logits with rotation to logits without; values below 1 are contractions.

    NaN where the logits without rotation are rounding noise.

    Args:
        spectral: Of the largest singular values.
        frobenius: Of Frobenius norms.
        nuclear: Of sums of singular values.
        spread: Of squared distances to the multiples of the identity: the ratio of the eigenvalues' variances
            where the logits are Hermitian.
    """

    spectral: Float[Tensor, "*b"]
    frobenius: Float[Tensor, "*b"]
    nuclear: Float[Tensor, "*b"]
    spread: Float[Tensor, "*b"]


@dataclass(frozen=True, eq=False)
class Contraction:
    """Effect of rotation on the spectrum of one head's logits.

    Args:
        raw: For the logits themselves, which depend on row constants that softmax ignores.
        gauge_fixed: For the logits minus their row means over the allowed keys.
    """

    raw: NormRatios
    gauge_fixed: NormRatios


def head_contraction(turned: Tensor, plain: Tensor, causal: bool = False) -> Contraction:
    r"""Measure the contraction of many heads by their rotation, with and without row means.

    Rotated logits are not a Hadamard product with the RoPE kernel, but
    :math:`\operatorname{Re}\sum_t (q^t k^{t*})\circ E_t`, with one unimodular matrix per frequency: no
    theorem says that they contract. The eigenvalues of causal logits are their diagonal, which rotation
    preserves, so singular values are compared.

    >>> q, k = torch.randn(2, 8, 30, 4)
    >>> f"{head_contraction(2 * q @ k.mT, q @ k.mT, causal=True).gauge_fixed.spectral.mean():.6f}"
    '2.000000'

    Args:
        turned: Logits with rotation, with shape (*b, n, n).
        plain: Logits of the same queries and keys without it.
        causal: Whether attention is causal; entries above the diagonal are then ignored.

    Raises:
        ConfigError: If the shapes differ, or logits are not square or not finite.
    """
    raw = [wide(masked(logits, causal), "logits") for logits in (turned, plain)]
    shapes = [tuple(logits.shape) for logits in raw]
    check(shapes[0] == shapes[1], f"turned and plain must have one shape; got {shapes[0]} and {shapes[1]}.")
    fixed = [row_centred(logits, causal) for logits in raw]
    sizes = _sizes(raw[1])
    scale = torch.stack([*sizes[:3], sizes[1] ** 2])
    return Contraction(*(NormRatios(*ratio(_sizes(a), _sizes(b), scale)) for a, b in (raw, fixed)))


def _sizes(logits: Float[Tensor, "*b n n"]) -> Float[Tensor, "4 *b"]:
    """Spectral, Frobenius and nuclear norm, and the spread."""
    values = torch.linalg.svdvals(logits)
    return torch.stack([values[..., 0], values.norm(dim=-1), values.sum(-1), _spread(logits)])
