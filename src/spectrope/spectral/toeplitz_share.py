"""Toeplitz part of logits: the nearest Toeplitz matrix, lag effects and shares of energy."""

import math
from dataclasses import dataclass

import scipy.linalg
import torch
from jaxtyping import Float
from torch import Tensor

from spectrope.spectral.checks import check, factors, square, tensor, wide
from spectrope.spectral.logits import diagonal_sums, masked, ratio, row_centred
from spectrope.spectral.operator import ToeplitzOperator
from spectrope.spectral.product import causal_row_means, diagonal_sums_of_product, logit_energy


@dataclass(frozen=True, eq=False)
class ToeplitzShares:
    r"""Shares of the energy of logits over the allowed pairs, as fractions; NaN where there is no energy.

    Args:
        raw: :math:`\tau = \sum_d (n-|d|)\,a_d^2 / \|L\|^2`, a the nearest Toeplitz matrix.
        mean_removed: τ of the logits minus their overall mean.
        gauge_fixed: Share of lags after removal of row effects, which softmax ignores; the main result.
    """

    raw: Float[Tensor, "*b"]
    mean_removed: Float[Tensor, "*b"]
    gauge_fixed: Float[Tensor, "*b"]


@dataclass(frozen=True, eq=False)
class LagEffects:
    r"""The least-squares fit :math:`L_{ij} \approx r_i + a_{i-j}` over the allowed pairs.

    Args:
        lags: a in logit units, from lag -(n-1), or 0 if causal, to n-1; with mean 0 over lags, as rows absorb
            a constant.
        share: Share of a in the energy that row effects leave, a fraction; NaN where they leave none.
    """

    lags: Float[Tensor, "*b lags"]
    share: Float[Tensor, "*b"]


def toeplitz_shares(logits: Tensor, causal: bool = False) -> ToeplitzShares:
    """Toeplitz shares of many dense logits at once.

    >>> lag = torch.arange(8.0)[:, None] - torch.arange(8.0)
    >>> rows = 10 * torch.randn(8, 1)
    >>> shares = toeplitz_shares(lag.cos() + rows, causal=True)
    >>> f"{shares.gauge_fixed:.6f}", bool(shares.raw < 0.99)
    ('1.000000', True)

    Args:
        logits: With shape (*b, n, n), n at least 2.
        causal: Whether query i sees keys j <= i alone; entries above the diagonal are never read.

    Raises:
        ConfigError: If the logits are not square, not real or not finite.
    """
    logits = _real_logits(logits, causal)
    return _shares(_Sums.of_matrix(logits, causal), _lag_effects(logits, causal))


def toeplitz_shares_of_product(q: Tensor, k: Tensor, causal: bool = False) -> ToeplitzShares:
    r"""Toeplitz shares of :math:`QK^\top` in :math:`O(dn\log n)`, never forming it.

    >>> q, k = torch.randn(2, 50, 4, dtype=torch.float64)
    >>> one, other = toeplitz_shares_of_product(q, k), toeplitz_shares(q @ k.T)
    >>> torch.testing.assert_close(one.gauge_fixed, other.gauge_fixed)

    Args:
        q: Queries as they enter the product, rotated where there is a rotation, with shape (n, d).
        k: Keys likewise, with shape (n, d).
        causal: Whether query i attends only to keys j <= i.
    """
    return _shares(_Sums.of_product(q, k, causal), lag_effects_of_product(q, k, causal))


def lag_effects(logits: Tensor, causal: bool = False) -> LagEffects:
    """Lag effects of a batch of dense logits, fitted together with row effects.

    >>> slope = -0.5 * (torch.arange(4.0)[:, None] - torch.arange(4.0))
    >>> lag_effects(slope, causal=True).lags
    tensor([ 0.7500,  0.2500, -0.2500, -0.7500], dtype=torch.float64)

    Args:
        logits: With shape (*b, n, n), n at least 2.
        causal: Whether query i sees keys j <= i alone; entries above the diagonal are never read.

    Raises:
        ConfigError: If the logits are not square, not real or not finite.
    """
    return _lag_effects(_real_logits(logits, causal), causal)


def _real_logits(logits: Tensor, causal: bool) -> Float[Tensor, "*b n n"]:
    shape = tuple(tensor(logits, "logits").shape)
    check(shape[-1:] != (0,), f"logits must have at least one position; got {shape}.")
    logits = wide(masked(logits, causal), "logits")
    check(not logits.is_complex(), "logits must be real; take the real part of complex ones.")
    return logits


def lag_effects_of_product(q: Tensor, k: Tensor, causal: bool = False) -> LagEffects:
    r"""Lag effects of :math:`QK^\top` beside its row effects, never forming it.

    >>> angle = 0.1 * torch.arange(1000.0)
    >>> wave = torch.stack([angle.cos(), angle.sin()], 1)  # the product is the cosine of the lag
    >>> f"{lag_effects_of_product(wave, wave).share:.6f}"
    '1.000000'

    Args:
        q: Queries, with shape (n, d), n at least 2.
        k: Keys, with shape (n, d).
        causal: Whether query i attends only to keys j <= i.
    """
    q, k = factors(q, k)
    k = k - k.mean(0)  # It adds to rows alone, and energies lose no digits to it.
    sums = _Sums.of_product(q, k, causal)
    return _fit(_row_centred_sums(sums, causal_row_means(q, k)) if causal else sums, sums.energy)


def null_shares(n: int, causal: bool = False) -> ToeplitzShares:
    """Expected shares for independent entries of one distribution, symmetric about 0: degrees of freedom of
    lags over all. Entries of different variances have others. `gauge_fixed` is NaN where n is 1.

    >>> null_shares(10, causal=True).raw  # 2 / (n + 1)
    tensor(0.1818, dtype=torch.float64)

    Raises:
        ConfigError: If n is less than 1.
    """
    check(n >= 1, f"n must be at least 1; got {n}.")
    lags, pairs = (n, n * (n + 1) // 2) if causal else (2 * n - 1, n**2)
    gauge_fixed = (lags - 1) / (pairs - n) if pairs > n else math.nan
    values = torch.tensor([lags / pairs, (lags - 1) / max(pairs - 1, 1), gauge_fixed], dtype=torch.float64)
    return ToeplitzShares(*values)


def nearest_toeplitz(matrix: Tensor, causal: bool = False) -> ToeplitzOperator:
    r"""The Toeplitz matrix nearest in Frobenius norm: :math:`t_d` is the mean of diagonal d.

    It is the orthogonal projection, hence unique; with `causal` the projection of the lower triangle, on
    lags of 0 and more.

    >>> nearest_toeplitz(torch.tensor([[1.0, 2.0], [3.0, 5.0]])).lags
    tensor([2., 3., 3.], dtype=torch.float64)

    Args:
        matrix: Real or complex, with shape (n, n).
        causal: Whether entries above the diagonal are to be read as absent.
    """
    matrix = tensor(matrix, "matrix")
    matrix = square(matrix.tril() if causal and matrix.ndim == 2 else matrix, "matrix")
    return _diagonal_means(diagonal_sums(matrix), len(matrix), causal)


def nearest_toeplitz_of_product(q: Tensor, k: Tensor, causal: bool = False) -> ToeplitzOperator:
    r"""The Toeplitz matrix nearest to :math:`QK^\top`, or to its lower triangle, in :math:`O(dn\log n)`.

    >>> q, k = torch.randn(2, 50, 4, dtype=torch.float64)
    >>> torch.testing.assert_close(nearest_toeplitz_of_product(q, k).lags, nearest_toeplitz(q @ k.T).lags)

    Args:
        q: Queries, with shape (n, d).
        k: Keys, with shape (n, d).
        causal: Whether query i sees keys j <= i alone.
    """
    return _diagonal_means(diagonal_sums_of_product(q, k), len(q), causal)


def _diagonal_means(sums: Tensor, n: int, causal: bool) -> ToeplitzOperator:
    lag = torch.arange(1 - n, n, device=sums.device)
    means = sums / (n - lag.abs())
    return ToeplitzOperator(torch.where(lag >= 0, means, 0) if causal else means)


@dataclass(frozen=True, eq=False)
class _Sums:
    """Energy and diagonal sums of real logits over the allowed pairs, on which all shares depend alone.

    Args:
        energy: Sum of squares, with shape (*b).
        diagonals: From lag -(n-1), or 0 if causal, to n-1, with shape (*b, lags).
        causal: Whether query i sees keys j <= i alone.
    """

    energy: Float[Tensor, "*b"]
    diagonals: Float[Tensor, "*b lags"]
    causal: bool

    @classmethod
    def of_matrix(cls, logits: Float[Tensor, "*b n n"], causal: bool) -> "_Sums":
        """Of logits that are 0 where attention is not allowed."""
        first = logits.shape[-1] - 1 if causal else 0
        return cls((logits**2).sum((-1, -2)), diagonal_sums(logits)[..., first:], causal)

    @classmethod
    def of_product(cls, q: Tensor, k: Tensor, causal: bool) -> "_Sums":
        first = len(q) - 1 if causal else 0
        return cls(logit_energy(q, k, causal), diagonal_sums_of_product(q, k)[first:], causal)

    @property
    def n(self) -> int:
        """Number of positions."""
        lags = self.diagonals.shape[-1]
        return lags if self.causal else (lags + 1) // 2

    @property
    def counts(self) -> Float[Tensor, " lags"]:
        """Allowed pairs at each lag."""
        lag = torch.arange(0 if self.causal else 1 - self.n, self.n, device=self.diagonals.device)
        return (self.n - lag.abs()).double()


def _shares(sums: _Sums, effects: LagEffects) -> ToeplitzShares:
    explained = (sums.diagonals**2 / sums.counts).sum(-1)
    mean = sums.diagonals.sum(-1) ** 2 / sums.counts.sum()
    mean_removed = ratio(explained - mean, sums.energy - mean, sums.energy)
    return ToeplitzShares(explained / sums.energy, mean_removed, effects.share)


def _lag_effects(logits: Float[Tensor, "*b n n"], causal: bool) -> LagEffects:
    """Of logits that are 0 where attention is not allowed."""
    return _fit(_Sums.of_matrix(row_centred(logits, causal), causal), (logits**2).sum((-1, -2)))


def _row_centred_sums(sums: _Sums, means: Float[Tensor, " n"]) -> _Sums:
    """Of causal logits minus their row means."""
    counts = torch.arange(1, sums.n + 1, device=means.device)
    below = means.flip(0).cumsum(0).flip(0)
    return _Sums(sums.energy - (counts * means**2).sum(), sums.diagonals - below, causal=True)


def _fit(centred: _Sums, scale: Tensor) -> LagEffects:
    """Lag effects from the sums of row-centred logits; NaN for a share of rounding noise of `scale`."""
    check(centred.n >= 2, f"row and lag effects need at least two positions; got {centred.n}.")
    lags = (_causal_lag_effects if centred.causal else _full_lag_effects)(centred)
    lags = lags - lags.mean(-1, keepdim=True)
    return LagEffects(lags, ratio((lags * centred.diagonals).sum(-1), centred.energy, scale))


def _causal_lag_effects(centred: _Sums) -> Float[Tensor, "*b lags"]:
    r"""Solve the normal equations of rows and lags by two running sums.

    With :math:`A_d = \sum_{e \le d} a_e` and no row sums, rows are :math:`r_i = -A_i/(i+1)`. Put into the
    equations of lags and differenced, they are tridiagonal in A, with the null vector d + 1; in
    :math:`u_d = A_d/(d+1)` they are the Laplacian of a path with conductances :math:`(n-1-d)(d+1)(d+2)`
    between d and d + 1, which a running sum of its right-hand side solves, D being the diagonal sums:

    .. math:: u_{d+1} - u_d = -\frac{\sum_{e\le d}(e+1)\,(D_e - D_{e+1})}{(n-1-d)(d+1)(d+2)}.

    :math:`u_0 = a_0` is free, the constant that rows and lags can exchange; it is 0 here.
    """
    d = torch.arange(centred.n - 1, dtype=torch.float64, device=centred.diagonals.device)
    flux = ((d + 1) * -centred.diagonals.diff()).cumsum(-1)
    steps = -flux / ((centred.n - 1 - d) * (d + 1) * (d + 2))
    means = torch.nn.functional.pad(steps.cumsum(-1), (1, 0))
    sums = means * torch.arange(1, centred.n + 1, device=d.device)
    return torch.cat([sums[..., :1], sums.diff()], -1)


def _full_lag_effects(centred: _Sums) -> Float[Tensor, "*b lags"]:
    r"""Solve the normal equations of rows and lags as one tridiagonal system.

    Let :math:`S_i` be the sum of the first i row effects, with :math:`S_n = 0` for the constant that rows and
    lags can exchange. Lag d is seen by the last n - d rows and lag d - n by the first d, so that
    :math:`(n-d)\,a_d = D_d + S_d` and :math:`d\,a_{d-n} = D_{d-n} - S_d`. Put into the differences of
    neighbouring rows' equations, which have no row sums, for 0 < i < n:

    .. math:: -S_{i+1} + 2S_i - S_{i-1} - \frac{S_i}{i(n-i)}
              = \frac1n\left(\frac{D_i}{n-i} - \frac{D_{i-n}}{i}\right).

    The matrix is positive definite: it maps i(n-i) to ones.
    """
    n, below, above = centred.n, centred.diagonals[..., : centred.n - 1], centred.diagonals[..., centred.n :]
    i = torch.arange(1, n, dtype=torch.float64, device=below.device)
    rhs = (above / (n - i) - below / i) / n
    bands = torch.stack([-torch.ones_like(i), 2 - 1 / (i * (n - i)), -torch.ones_like(i)]).cpu().numpy()
    columns = rhs.reshape(-1, n - 1).T.cpu().numpy()
    solved = torch.from_numpy(scipy.linalg.solve_banded((1, 1), bands, columns)).to(rhs)
    rows = solved.T.reshape(rhs.shape)
    middle = centred.diagonals[..., n - 1 : n] / n
    return torch.cat([(below - rows) / i, middle, (above + rows) / (n - i)], -1)
