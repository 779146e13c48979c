"""Spectral contraction: what a Hadamard product with a correlation matrix proves, and what a head does."""

from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import torch
from torch import Tensor

from spectrope.spectral.anova import ratio
from spectrope.spectral.checks import check, factors, square
from spectrope.spectral.majorisation import Majorisation, majorises, support_function
from spectrope.spectral.operator import ToeplitzOperator
from spectrope.spectral.product import logit_energy, row_centred
from spectrope.spectral.singular import causal_singular_values, product_singular_values

DENSE_ROWS = 2048


@runtime_checkable
class Rotation(Protocol):
    """What turns queries and keys according to their positions, such as an encoding."""

    def rotate(self, x: Tensor, pos: Tensor, side: Literal["query", "key"]) -> Tensor:
        """(b, h, t, d) and (b or 1, t) -> (b, h, t, d)."""
        ...


@dataclass(frozen=True)
class HadamardContraction:
    r"""W against W ∘ C; ratios are of the second to the first.

    Args:
        eigenvalues: Test of :math:`\lambda(W\circ C) \prec \lambda(W)`; None unless W and C are Hermitian.
        singular_values: Test of :math:`\sigma(W\circ C) \prec_w \sigma(W)`.
        field_excess: Greatest excess, over 32 directions, of the support function of F(W ∘ C) over that of
            F(W), in the units of W: not positive where the first field of values lies in the second.
        variance_ratio: Ratio of the variances of eigenvalues; None unless W and C are Hermitian.
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

    For a correlation matrix C (positive semidefinite, unit diagonal) :math:`W\circ C` is a mean of unitary
    conjugates of W, so that eigenvalues are majorised for Hermitian W, singular values weakly for any W, and
    the field of values only shrinks; all that is a theorem, for any other C it is a question. A unimodular
    Hermitian C keeps trace and variance and may expand.

    Args:
        w: With shape (n, n).
        c: With shape (n, n).

    Raises:
        ConfigError: If the shapes differ, or W is zero.

    References:
        On majorization and Schur products (Bapat and Sunder, 1985);
        Ando, Horn and Johnson (1987), The singular values of a Hadamard product.
    """
    w, c = square(w, "w"), square(c, "c")
    check(w.shape == c.shape, f"w and c must have one shape; got {tuple(w.shape)} and {tuple(c.shape)}.")
    check(bool(w.any()), "w must not be zero: ratios to nothing are undefined.")
    product = w * c
    before, after = torch.linalg.svdvals(w), torch.linalg.svdvals(product)
    hermitian = _is_hermitian(w) and _is_hermitian(product)
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
    r"""Ratio of the eigenvalues' variances of W ∘ C and of W, both Hermitian, without solving for any.

    .. math:: \frac{\sum|W_{ij}|^2|C_{ij}|^2 - (\operatorname{tr} W\circ C)^2/n}
                   {\sum|W_{ij}|^2 - (\operatorname{tr} W)^2/n}

    Not a number where W is a multiple of the identity.
    """
    w, c = square(w, "w"), square(c, "c")
    return ratio(spread(w * c), spread(w), (w.abs() ** 2).sum().item())


def spread(matrix: Tensor) -> float:
    r"""Squared distance :math:`\|M\|_F^2 - |\operatorname{tr} M|^2/n` to the multiples of the identity.

    For a Hermitian matrix it is n times the variance of its eigenvalues.
    """
    return (matrix.abs() ** 2).sum().item() - abs(matrix.diagonal().sum().item()) ** 2 / len(matrix)


def schur_bounds(w: Tensor, c: Tensor) -> tuple[float, float]:
    r"""Bounds below and above all eigenvalues of W ∘ C for positive semidefinite W and C.

    :math:`\lambda_{\max} \le \min(\lambda_{\max}(W) \max C_{ii}, \max W_{ii}\,\lambda_{\max}(C))`, and the
    least eigenvalue likewise from below; units of W times those of C.

    Raises:
        ConfigError: If one of them is not positive semidefinite up to rounding.

    References:
        Bemerkungen zur Theorie der beschränkten Bilinearformen (Schur, 1911), Satz VII.
    """
    w, c = square(w, "w"), square(c, "c")
    ends = {}
    for name, matrix in (("w", w), ("c", c)):
        values = torch.linalg.eigvalsh(matrix)
        rounding = 1e-12 * values.abs().max().item()
        semidefinite = _is_hermitian(matrix) and values[0].item() >= -rounding
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

    Args:
        operator: T.
        frequencies: Radians per position, with shape (m,).
        theta: Angles, with shape (k,).
    """
    shifted = theta[:, None] + torch.cat([frequencies, -frequencies])
    return operator.symbol(shifted).mean(1)


@dataclass(frozen=True)
class NormRatios:
    """Logits with rotation against logits without, as ratios; below 1 is contraction.

    Args:
        spectral: Of the largest singular values.
        frobenius: Of Frobenius norms.
        nuclear: Of sums of singular values; None for causal logits beyond 2,048 positions, whose small
            singular values are out of reach.
        spread: Of squared distances to the multiples of the identity: the ratio of the eigenvalues' variances
            where the logits are Hermitian.
    """

    spectral: float
    frobenius: float
    nuclear: float | None
    spread: float


@dataclass(frozen=True)
class Contraction:
    """What rotation does to the spectrum of one head's logits.

    Args:
        raw: For the logits as they are, which depend on a gauge that softmax ignores.
        gauge_fixed: For the logits minus their row means over the allowed keys.
    """

    raw: NormRatios
    gauge_fixed: NormRatios


def contraction(q: Tensor, k: Tensor, encoding: Rotation, causal: bool = False) -> Contraction:
    r"""Measure one head with and without its rotation, raw and in the softmax gauge.

    Rotated logits are not a Hadamard product with the RoPE kernel, but
    :math:`\operatorname{Re}\sum_t (q^t k^{t*})\circ E_t`, one unimodular matrix per frequency: no theorem
    makes them contract. The same q and k serve both sides; causal logits are compared by singular values.

    Args:
        q: Queries before rotation, with shape (n, d).
        k: Keys before rotation, with shape (n, d).
        encoding: Anything with the `rotate` of an encoding.
        causal: Whether query i sees keys j <= i alone.

    Raises:
        ConfigError: If the logits without rotation are all zero.
    """
    q, k = factors(q, k)
    check(logit_energy(q, k, causal) > 0, "logits must not all be zero: ratios to nothing are undefined.")
    rotated = _rotated(q, encoding, "query"), _rotated(k, encoding, "key")
    return Contraction(
        raw=norm_ratios(rotated, (q, k), causal),
        gauge_fixed=norm_ratios(row_centred(*rotated, causal), row_centred(q, k, causal), causal),
    )


def norm_ratios(
    after: tuple[Tensor, Tensor], before: tuple[Tensor, Tensor], causal: bool = False
) -> NormRatios:
    """Norms of the logits of one pair of factors (q, k) relative to those of another.

    Not numbers where the second logits are rounding noise of their factors, as those of equal keys are once
    the gauge is fixed.
    """
    (energy, values, trace), (energy0, values0, trace0) = (_sizes(*pair, causal) for pair in (after, before))
    n = len(after[0])
    scale = (before[0].norm() * before[1].norm()).item() ** 2
    complete = len(values0) == min(before[0].shape) if not causal else len(values0) == n
    return NormRatios(
        spectral=ratio(values[0].item(), values0[0].item(), scale**0.5),
        frobenius=ratio(energy, energy0, scale) ** 0.5,
        nuclear=ratio(values.sum().item(), values0.sum().item(), scale**0.5) if complete else None,
        spread=ratio(energy - trace**2 / n, energy0 - trace0**2 / n, scale),
    )


def _sizes(q: Tensor, k: Tensor, causal: bool) -> tuple[float, Tensor, float]:
    """Energy, singular values and trace of the logits of one pair of factors."""
    return logit_energy(q, k, causal), _singular_values(q, k, causal), (q * k).sum().item()


def _singular_values(q: Tensor, k: Tensor, causal: bool) -> Tensor:
    if not causal:
        return product_singular_values(q, k)
    return causal_singular_values(q, k, len(q) if len(q) <= DENSE_ROWS else 1)


def _rotated(x: Tensor, encoding: Rotation, side: Literal["query", "key"]) -> Tensor:
    pos = torch.arange(len(x), device=x.device)[None]
    return encoding.rotate(x[None, None], pos, side)[0, 0]


def _is_hermitian(matrix: Tensor) -> bool:
    return torch.allclose(matrix, matrix.mH, rtol=1e-12, atol=1e-12 * matrix.abs().max().item())
