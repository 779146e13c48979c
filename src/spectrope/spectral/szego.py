"""How far a spectrum is from its symbol: Szegő for eigenvalues, Avram and Parter for singular values."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
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


@dataclass(frozen=True, eq=False)
class SymbolMatch:
    """A spectrum beside the values of its symbol at a uniform angle, both in the units of the entries.

    Args:
        values: Eigenvalues or singular values, ascending, with shape (n,).
        quantiles: Mean of the symbol's values of the same ranks, n of them in all, with shape (n,).
        distance: Wasserstein distance W₁ of both, not of the quantiles alone.
        tail_share: As the function of that name says.
    """

    values: Float[Tensor, " n"]
    quantiles: Float[Tensor, " n"]
    distance: float
    tail_share: float

    @property
    def theorem_applies(self) -> bool:
        """Whether the lags decay, as those of every fixed symbol do; else the distance need not vanish."""
        return self.tail_share <= TAIL


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
    found = eigenvalue_match(operator, symbol)
    _warn(found, "Szegő's theorem")
    return found.distance


def eigenvalue_match(operator: ToeplitzOperator, symbol: Symbol | None = None) -> SymbolMatch:
    """The eigenvalues beside the symbol, rank by rank; as `szego_distance`, without warning."""
    require_hermitian(operator)
    _refuse(operator)
    return _matched(operator, torch.linalg.eigvalsh(operator.dense()), _samples(operator, symbol).real)


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
    found = singular_value_match(operator, symbol)
    _warn(found, "The theorem of Avram and Parter")
    return found.distance


def singular_value_match(operator: ToeplitzOperator, symbol: Symbol | None = None) -> SymbolMatch:
    """The singular values beside the symbol's modulus; as `avram_parter_distance`, without warning."""
    _refuse(operator)
    return _matched(operator, torch.linalg.svdvals(operator.dense()), _samples(operator, symbol).abs())


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
    return DistanceRate(
        tuple(lengths), tuple(found.tolist()), tuple((found * lengths).tolist()), _exponent(lengths, found)
    )


def fitted_rate(lengths: Sequence[int], distances: Sequence[float]) -> float | None:
    """p of the law :math:`W_1 \\approx c\\,n^{-p}`; None for fewer than two lengths, or a distance of 0."""
    found = np.array(distances)
    return _exponent(lengths, found) if len(set(lengths)) >= 2 and (found > 0).all() else None


def _exponent(lengths: Sequence[int], distances: Float[np.ndarray, " n"]) -> float:
    return float(-np.polyfit(np.log(lengths), np.log(distances), 1)[0])


def _refuse(operator: ToeplitzOperator) -> None:
    if operator.n > DENSE_ROWS:
        raise UnsupportedError(
            f"the distance needs all eigenvalues, taken densely up to {DENSE_ROWS} rows; got {operator.n}."
        )


def _warn(found: SymbolMatch, theorem: str) -> None:
    if not found.theorem_applies:
        warnings.warn(
            f"{theorem} needs a fixed symbol; {found.tail_share:.0%} of these lags' absolute sum lies beyond "
            "n/2.",
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


def _matched(operator: ToeplitzOperator, values: Tensor, samples: Tensor) -> SymbolMatch:
    """W₁ by quantiles: value k against the samples of ranks k M, ..., (k+1) M - 1."""
    values, ranked = values.sort().values, samples.sort().values.view(len(values), -1)
    distance = (ranked - values[:, None]).abs().mean().item()
    return SymbolMatch(values, ranked.mean(1), distance, tail_share(operator))
