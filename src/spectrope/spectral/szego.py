"""Distance of a spectrum from its symbol: theorems of Szegő, and of Avram and Parter."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from spectrope.core import UnsupportedError
from spectrope.spectral.checks import check, wide
from spectrope.spectral.operator import ToeplitzOperator
from spectrope.spectral.symbol import require_hermitian

DENSE_ROWS = 4096
TAIL = 0.05
SAMPLES = 64

SymbolFunction = Callable[[Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class SymbolMatch:
    r"""A spectrum beside the values of its symbol at a uniform angle, both in the units of the entries.

    Args:
        values: Eigenvalues or singular values, ascending, with shape (n,).
        quantiles: Mean of the symbol's values of the same ranks, n of them in all, with shape (n,).
        distance: Wasserstein distance W₁ of both, not of the quantiles alone.
        tail_share: Share of :math:`\sum_d |t_d|` at lags beyond n/2; see `tail_share`.
    """

    values: Float[Tensor, " n"]
    quantiles: Float[Tensor, " n"]
    distance: float
    tail_share: float

    @property
    def theorem_applies(self) -> bool:
        """Whether lags decay within these n, as they do for summable ones and n large enough; otherwise this
        length says nothing of the limit. Nothing decays within one or two positions."""
        return len(self.values) > 2 and self.tail_share <= TAIL


def tail_share(operator: ToeplitzOperator) -> float:
    r"""Share of :math:`\sum_d |t_d|` that lies at lags beyond n/2.

    It tends to 0 with growing n for every fixed symbol with summable lags. For ALiBi it is 3/4, for
    a RoPE kernel it stays above a quarter: neither has a symbol, whatever their finite sections look like.
    One or two positions have no such lag; it is 0 there.
    """
    size = operator.lags.abs()
    far = torch.arange(1 - operator.n, operator.n, device=size.device).abs() > operator.n / 2
    total = size.sum().item()
    return size[far].sum().item() / total if total > 0 else 0.0


def eigenvalue_match(operator: ToeplitzOperator, symbol: SymbolFunction | None = None) -> SymbolMatch:
    r"""The eigenvalues beside the symbol, rank by rank.

    Szegő's theorem sends their distance to 0 for a fixed real continuous symbol, at the rate 1/n if that is
    smooth: :math:`nW_1 \to .7930` for :math:`t_d = .5^{|d|}`, and :math:`2 - 8/\pi^2` for the symbol 2 cos θ.
    All eigenvalues are needed: stochastic Lanczos quadrature has a floor of about .03, too coarse for this
    rate.

    >>> match = eigenvalue_match(ToeplitzOperator.of(lambda lag: 0.5 ** lag.abs(), 400))
    >>> f"{400 * match.distance:.2f}", match.theorem_applies
    ('0.79', True)

    Args:
        operator: Hermitian, n x n with n up to 4,096.
        symbol: The limit's symbol f(θ), real; the truncated one if left out.

    Raises:
        ConfigError: If the matrix is not Hermitian, or the symbol is not real or not finite.
        UnsupportedError: Beyond 4,096 rows.

    References:
        Toeplitz and Circulant Matrices: A Review (Gray, 2006), Thm. 9.
    """
    require_hermitian(operator)
    _refuse_long(operator)
    samples = _samples(operator, symbol)
    if samples.is_complex():
        is_real = bool(samples.imag.abs().max() <= 1e-9 * samples.abs().max())
        check(is_real, "symbol must be real for eigenvalues; singular_value_match takes a complex one.")
    return _matched(operator, torch.linalg.eigvalsh(operator.dense()), samples.real)


def singular_value_match(operator: ToeplitzOperator, symbol: SymbolFunction | None = None) -> SymbolMatch:
    """The singular values beside the modulus of the symbol, rank by rank.

    Avram's and Parter's theorem generalises Szegő's from Hermitian to all Toeplitz matrices, including causal
    ones.

    >>> causal = ToeplitzOperator.causal(0.5 ** torch.arange(200.0))
    >>> singular_value_match(causal).distance < 0.01
    True

    Args:
        operator: n x n with n up to 4,096.
        symbol: The limit's symbol f(θ); the truncated one if left out.

    Raises:
        UnsupportedError: Beyond 4,096 rows.

    References:
        On bilinear forms in Gaussian random variables and Toeplitz matrices (Avram, 1988);
        On the distribution of the singular values of Toeplitz matrices (Parter, 1986).
    """
    _refuse_long(operator)
    return _matched(operator, torch.linalg.svdvals(operator.dense()), _samples(operator, symbol).abs())


def fitted_rate(lengths: Sequence[int], distances: Sequence[float]) -> float | None:
    r"""p of the law :math:`W_1 \approx c\,n^{-p}` by least squares on logarithms.

    None for fewer than two lengths, or a distance of 0.

    >>> f"{fitted_rate([10, 100, 1000], [0.2, 0.02, 0.002]):.6f}"
    '1.000000'
    """
    values = np.array(distances)
    if len(set(lengths)) < 2 or not (values > 0).all():
        return None
    return float(-np.polyfit(np.log(lengths), np.log(values), 1)[0])


def _refuse_long(operator: ToeplitzOperator) -> None:
    if operator.n > DENSE_ROWS:
        raise UnsupportedError(
            f"the distance needs all eigenvalues, taken densely up to {DENSE_ROWS} rows; got {operator.n}."
        )


def _samples(operator: ToeplitzOperator, symbol: SymbolFunction | None) -> Tensor:
    """The symbol at the midpoints of `SAMPLES` intervals per row around the circle."""
    points = SAMPLES * operator.n
    theta = (torch.arange(points, dtype=torch.float64, device=operator.lags.device) + 0.5) * (
        2 * torch.pi / points
    )
    if symbol is not None:
        values = wide(symbol(theta), "symbol")
        check(values.shape == theta.shape, f"symbol must give a value per angle; got {tuple(values.shape)}.")
        return values
    d = torch.arange(1 - operator.n, operator.n, device=theta.device)
    return ToeplitzOperator(operator.lags * torch.exp(1j * d * theta[0])).symbol_on_grid(points)


def _matched(operator: ToeplitzOperator, values: Tensor, samples: Tensor) -> SymbolMatch:
    """W₁ by quantiles: value k against the samples of ranks k M, ..., (k+1) M - 1."""
    values, ranked = values.sort().values, samples.sort().values.view(len(values), -1)
    distance = (ranked - values[:, None]).abs().mean().item()
    return SymbolMatch(values, ranked.mean(1), distance, tail_share(operator))
