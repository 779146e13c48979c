"""How far a spectrum is from its symbol: Szegő for eigenvalues, Avram and Parter for singular values."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from spectrope.core.errors import UnsupportedError
from spectrope.spectral.checks import check
from spectrope.spectral.operator import ToeplitzOperator
from spectrope.spectral.symbol import require_hermitian

DENSE_ROWS = 4096
TAIL = 0.05
SAMPLES = 64

Symbol = Callable[[Tensor], Tensor]


class SymbolWarning(UserWarning):
    """The lags do not decay, so that the theorem on the limit of the spectrum does not apply."""


@dataclass(frozen=True)
class DistanceRate:
    r"""Wasserstein distances at growing n, and the law :math:`W_1 \approx c\,n^{-p}` fitted to them.

    Args:
        lengths: n.
        distances: W₁ in the units of the entries.
        scaled: n W₁, which tends to a constant for a smooth symbol.
        exponent_estimate: p, by least squares on logarithms.
    """

    lengths: tuple[int, ...]
    distances: tuple[float, ...]
    scaled: tuple[float, ...]
    exponent_estimate: float


def tail_share(operator: ToeplitzOperator) -> float:
    r"""Share of :math:`\sum_d |t_d|` that lies at lags beyond n/2.

    It tends to 0 with growing n for every fixed symbol with summable lags. For ALiBi it is 3/4, for
    a RoPE kernel it stays above a quarter: neither has a symbol, whatever their finite sections look like.
    """
    size = operator.lags.abs()
    far = torch.arange(1 - operator.n, operator.n, device=size.device).abs() > operator.n / 2
    total = size.sum().item()
    return size[far].sum().item() / total if total > 0 else 0.0


def szego_distance(operator: ToeplitzOperator, symbol: Symbol | None = None) -> float:
    r"""Wasserstein distance between the eigenvalues and the values of the symbol at a uniform angle.

    Szegő's theorem sends it to 0 for a fixed real continuous symbol, at the rate 1/n if that is smooth:
    :math:`nW_1 \to .7930` for :math:`t_d = .5^{|d|}`, and :math:`2 - 8/\pi^2` for the symbol 2 cos θ. All
    eigenvalues are needed: stochastic Lanczos quadrature has a floor of about .03, too coarse for this rate.

    Args:
        operator: Hermitian, n x n with n up to 4,096.
        symbol: The limit's symbol f(θ), real; the truncated one if left out.

    Returns:
        W₁ in the units of the entries.

    Warns:
        SymbolWarning: If more than 5 % of the lags' absolute sum lies beyond n/2, as for RoPE and ALiBi.

    Raises:
        ConfigError: If the matrix is not Hermitian.
        UnsupportedError: Beyond 4,096 rows.

    References:
        Toeplitz and Circulant Matrices: A Review (Gray, 2006), Thm. 9.
    """
    require_hermitian(operator)
    _warn_and_refuse(operator, "Szegő's theorem")
    samples = _samples(operator, symbol)
    return _distance(torch.linalg.eigvalsh(operator.dense()), samples.real)


def avram_parter_distance(operator: ToeplitzOperator, symbol: Symbol | None = None) -> float:
    r"""Wasserstein distance between the singular values and the modulus of the symbol at a uniform angle.

    What Szegő's theorem is to Hermitian matrices, Avram's and Parter's is to all Toeplitz matrices, causal
    ones included.

    Args:
        operator: n x n with n up to 4,096.
        symbol: The limit's symbol f(θ); the truncated one if left out.

    Returns:
        W₁ in the units of the entries.

    Warns:
        SymbolWarning: As `szego_distance`.

    Raises:
        UnsupportedError: Beyond 4,096 rows.

    References:
        On bilinear forms in Gaussian random variables and Toeplitz matrices (Avram, 1988);
        On the distribution of the singular values of Toeplitz matrices (Parter, 1986).
    """
    _warn_and_refuse(operator, "The theorem of Avram and Parter")
    return _distance(torch.linalg.svdvals(operator.dense()), _samples(operator, symbol).abs())


def distance_rate(
    distance: Callable[[ToeplitzOperator], float],
    make: Callable[[int], ToeplitzOperator],
    lengths: Sequence[int],
) -> DistanceRate:
    """Distances of the sections that `make` gives, and the rate at which they fall.

    Args:
        distance: `szego_distance` or `avram_parter_distance`, with its symbol bound where there is one.
        make: n -> the n x n section.
        lengths: At least two values of n.
    """
    check(len(set(lengths)) >= 2, f"lengths must hold two values or more; got {tuple(lengths)}.")
    found = np.array([distance(make(n)) for n in lengths])
    check(
        bool((found > 0).all()), "distances must be positive to have a rate; the spectrum equals the symbol."
    )
    slope = np.polyfit(np.log(lengths), np.log(found), 1)[0]
    return DistanceRate(
        tuple(lengths), tuple(found.tolist()), tuple((found * lengths).tolist()), float(-slope)
    )


def _warn_and_refuse(operator: ToeplitzOperator, theorem: str) -> None:
    if operator.n > DENSE_ROWS:
        raise UnsupportedError(
            f"the distance needs all eigenvalues, taken densely up to {DENSE_ROWS} rows; got {operator.n}."
        )
    if (share := tail_share(operator)) > TAIL:
        warnings.warn(
            f"{theorem} needs a fixed symbol; {share:.0%} of these lags' absolute sum lies beyond n/2.",
            SymbolWarning,
            stacklevel=3,
        )


def _samples(operator: ToeplitzOperator, symbol: Symbol | None) -> Tensor:
    """The symbol at the midpoints of `SAMPLES` intervals per row around the circle."""
    points = SAMPLES * operator.n
    theta = (torch.arange(points, dtype=torch.float64, device=operator.lags.device) + 0.5) * (
        2 * torch.pi / points
    )
    if symbol is not None:
        return symbol(theta)
    d = torch.arange(1 - operator.n, operator.n, device=theta.device)
    return ToeplitzOperator(operator.lags * torch.exp(1j * d * theta[0])).symbol_on_grid(points)


def _distance(values: Tensor, samples: Tensor) -> float:
    """W₁ by quantiles: value k against the samples of ranks k M, ..., (k+1) M - 1."""
    quantiles = samples.sort().values.view(len(values), -1)
    return (quantiles - values.sort().values[:, None]).abs().mean().item()
