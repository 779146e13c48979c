"""Row, column and lag effects of logits: least squares over the allowed pairs, in O(n)."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse
import torch
from jaxtyping import Float
from scipy.sparse.linalg import LinearOperator, cg
from torch import Tensor

from spectrope.spectral.checks import check, factors, real_matrix
from spectrope.spectral.product import column_sums, diagonal_sums, energy_and_row_sums, matrix_diagonal_sums


@dataclass(frozen=True, eq=False)
class LogitSums:
    """All that row, column and lag effects need to know of real logits over the allowed pairs.

    Args:
        energy: Sum of squares, in squared logit units.
        rows: Sum of each row, with shape (n,).
        columns: Sum of each column, with shape (n,), or (0,) where no column
            effects are to be fitted.
        diagonals: Sum of each diagonal, with shape (2n-1,), or (n,) from lag 0 on if causal.
        causal: Whether query i sees keys j <= i alone.
    """

    energy: float
    rows: Float[Tensor, " n"]
    columns: Float[Tensor, " columns"]
    diagonals: Float[Tensor, " lags"]
    causal: bool

    @classmethod
    def of_product(cls, q: Tensor, k: Tensor, causal: bool = False, columns: bool = False) -> "LogitSums":
        """Of :math:`QK^\\top`, never formed; q and k have shape (n, d)."""
        diagonals = diagonal_sums(q, k)[len(q) - 1 if causal else 0 :]
        energy, rows = energy_and_row_sums(q, k, causal)
        by_column = column_sums(q, k, causal) if columns else rows[:0]
        return cls(energy, rows, by_column, diagonals, causal)

    @classmethod
    def of_matrix(cls, logits: Tensor, causal: bool = False, columns: bool = False) -> "LogitSums":
        """Of dense logits of shape (n, n); with `causal` what lies above the diagonal is not read."""
        is_square = logits.ndim == 2 and logits.shape[0] == logits.shape[1]
        check(is_square, f"logits must be square; got {tuple(logits.shape)}.")
        logits = real_matrix(torch.tril(logits) if causal else logits, "logits")
        n = len(logits)
        diagonals = matrix_diagonal_sums(logits)[n - 1 if causal else 0 :]
        by_column = logits.sum(0)[: n if columns else 0]
        return cls((logits**2).sum().item(), logits.sum(1), by_column, diagonals, causal)

    @property
    def n(self) -> int:
        """Number of positions."""
        return len(self.rows)

    @cached_property
    def row_counts(self) -> Float[Tensor, " n"]:
        """Keys that each query sees."""
        ramp = torch.arange(1, self.n + 1, dtype=torch.float64, device=self.rows.device)
        return ramp if self.causal else torch.full_like(ramp, self.n)

    @cached_property
    def column_counts(self) -> Float[Tensor, " n"]:
        """Queries that see each key."""
        return self.row_counts.flip(0)

    @cached_property
    def lag_counts(self) -> Float[Tensor, " lags"]:
        """Pairs at each lag."""
        first = 0 if self.causal else 1 - self.n
        lag = torch.arange(first, self.n, dtype=torch.float64, device=self.rows.device)
        return self.n - lag.abs()

    @property
    def pairs(self) -> int:
        """Allowed pairs."""
        return self.n * (self.n + 1) // 2 if self.causal else self.n**2


@dataclass(frozen=True, eq=False)
class LagEffects:
    r"""The least-squares fit :math:`L_{ij} \approx r_i + [c_j +] a_{i-j}` over the allowed pairs.

    Args:
        rows: r, in logit units, with shape (n,).
        columns: c, with shape (n,), zeros where columns were not asked for.
        lags: a, with shape (2n-1,), or (n,) from lag 0 on if causal.
        energy: Sum of squares of the logits.
        gauge_energy: Sum of squares explained by rows [and columns] alone.
        fitted_energy: Sum of squares explained by all effects.
        null: Share that unstructured logits would yield: lag degrees of freedom over those left by the gauge.
    """

    rows: Float[Tensor, " n"]
    columns: Float[Tensor, " n"]
    lags: Float[Tensor, " lags"]
    energy: float
    gauge_energy: float
    fitted_energy: float
    null: float

    @property
    def share(self) -> float:
        r"""Partial share :math:`R^2 = (E_{\text{all}} - E_{\text{gauge}})/(E - E_{\text{gauge}})`.

        Not a number where rows [and columns] explain all there is, up to rounding.
        """
        return ratio(self.fitted_energy - self.gauge_energy, self.energy - self.gauge_energy, self.energy)

    @property
    def calibrated_share(self) -> float:
        """(share - null) / (1 - null): 0 for unstructured logits on average, 1 for Toeplitz ones."""
        return ratio(self.share - self.null, 1 - self.null, 1.0)


def ratio(part: float, whole: float, scale: float) -> float:
    """part / whole, or not a number where the whole is rounding noise of `scale`."""
    return part / whole if whole > 1e-13 * scale else float("nan")


def lag_anova(q: Tensor, k: Tensor, causal: bool = False, columns: bool = False) -> LagEffects:
    """Lag effects of QK^T beside its row [and column] effects, without forming it.

    The mean key is subtracted first: it shifts rows alone, and energies lose no digits to it; the returned
    energies are those of the logits without it.

    Args:
        q: Queries, with shape (n, d).
        k: Keys, with shape (n, d).
        causal: Whether query i sees keys j <= i alone.
        columns: Whether to fit column effects too.
    """
    q, k = factors(q, k)
    sums = LogitSums.of_product(q, k - k.mean(0), causal, columns)
    return fit_lag_effects(sums)


def fit_lag_effects(sums: LogitSums) -> LagEffects:
    """Fit row, lag [and column] effects; rows and lags of causal logits in closed form, else iteratively.

    Column effects are fitted where `sums` has column sums.

    Raises:
        ConfigError: If there are fewer than two positions.
    """
    check(sums.n >= 2, f"row and lag effects need at least two positions; got {sums.n}.")
    if len(sums.columns):
        gauge, (rows, columns, lags) = _gauge_with_columns(sums), _conjugate_gradients(sums)
    else:
        gauge = (sums.rows**2 / sums.row_counts).sum().item()
        rows, columns, lags = causal_rows_and_lags(sums) if sums.causal else _conjugate_gradients(sums)
    fitted = (rows @ sums.rows + columns @ sums.columns + lags @ sums.diagonals).item()
    columns = columns if len(columns) else torch.zeros_like(rows)
    return LagEffects(rows, columns, lags, sums.energy, gauge, fitted, _null(sums))


def causal_rows_and_lags(
    sums: LogitSums,
) -> tuple[Float[Tensor, " n"], Float[Tensor, " columns"], Float[Tensor, " lags"]]:
    r"""Row and lag effects of causal logits in closed form, by two running sums.

    With :math:`A_d = \sum_{e \le d} a_e` the normal equations of rows read
    :math:`r_i = (R_i - A_i)/(i+1)`. Put into those of lags and differenced they are tridiagonal in A, with
    the null vector d + 1; in :math:`u_d = A_d/(d+1)` they are the Laplacian of a path with conductances
    :math:`(n-1-d)(d+1)(d+2)` between d and d + 1, which a running sum of its right-hand side solves:

    .. math:: u_{d+1} - u_d = -\frac{\sum_{e\le d}(e+1)\,(D_e - D_{e+1}) - R_e}{(n-1-d)(d+1)(d+2)}.

    :math:`u_0 = a_0` is free, the constant that rows and lags can exchange; it is 0 here.

    Args:
        sums: Of causal logits.

    Returns:
        Rows, columns (none) and lags.
    """
    d = torch.arange(sums.n - 1, dtype=torch.float64, device=sums.rows.device)
    flux = ((d + 1) * -sums.diagonals.diff() - sums.rows[:-1]).cumsum(0)
    steps = -flux / ((sums.n - 1 - d) * (d + 1) * (d + 2))
    mean_so_far = torch.nn.functional.pad(steps.cumsum(0), (1, 0))
    total = mean_so_far * sums.row_counts
    lags = torch.cat([total[:1], total.diff()])
    return sums.rows / sums.row_counts - mean_so_far, sums.columns[:0], lags


class _NormalEquations(LinearOperator):
    """The normal equations of rows, lags [and columns]: singular, consistent, and applied by running sums."""

    def __init__(self, sums: LogitSums) -> None:
        self.causal, self.sizes = sums.causal, [sums.n, len(sums.columns), len(sums.diagonals)]
        self.weights = self.joined(sums.row_counts, sums.column_counts, sums.lag_counts)
        super().__init__(np.dtype(np.float64), (sum(self.sizes), sum(self.sizes)))

    def joined(self, *parts: Tensor) -> Tensor:
        """Rows, columns (if fitted) and lags as one vector."""
        return torch.cat([part[:size] for part, size in zip(parts, self.sizes, strict=True)])

    def split(self, x: np.ndarray) -> tuple[Tensor, Tensor, Tensor]:
        """Rows, columns (of length 0 if not fitted) and lags of a vector."""
        rows, columns, lags = torch.from_numpy(x.ravel()).to(self.weights).split(self.sizes)
        return rows, columns, lags

    def _matvec(self, x: np.ndarray) -> np.ndarray:
        parts = self.split(x)
        crossed = self.joined(*_cross_terms(*parts, self.causal))
        return (self.weights * torch.cat(parts) + crossed).cpu().numpy()


def _conjugate_gradients(
    sums: LogitSums,
) -> tuple[Float[Tensor, " n"], Float[Tensor, " columns"], Float[Tensor, " lags"]]:
    """Row, column and lag effects by conjugate gradients, preconditioned by the counts of pairs."""
    operator = _NormalEquations(sums)
    rhs = operator.joined(sums.rows, sums.columns, sums.diagonals).cpu().numpy()
    scale = scipy.sparse.diags_array(1 / operator.weights.cpu().numpy())
    solution, _ = cg(operator, rhs, rtol=1e-12, atol=0.0, maxiter=500, M=scale)
    return operator.split(solution)


def _cross_terms(rows: Tensor, cols: Tensor, lags: Tensor, causal: bool) -> tuple[Tensor, Tensor, Tensor]:
    """What each row, column and lag collects from the effects of the other two kinds."""
    n, cols = len(rows), cols if len(cols) else torch.zeros_like(rows)
    past, seen = _running(lags), _running(rows)
    i = torch.arange(n, device=rows.device)
    if causal:
        by_row = past[i + 1] + _running(cols)[i + 1]
        by_column = past[n - i] + seen[n] - seen[i]
        by_lag = seen[n] - seen[i] + _running(cols)[n - i]
        return by_row, by_column, by_lag
    d = torch.arange(1 - n, n, device=rows.device)
    low, high = d.clamp(min=0), n + d.clamp(max=0)
    by_row = past[i + n] - past[i] + cols.sum()
    by_column = past[2 * n - 1 - i] - past[n - 1 - i] + rows.sum()
    through = _running(cols)
    return by_row, by_column, seen[high] - seen[low] + through[high - d] - through[low - d]


def _running(x: Tensor) -> Tensor:
    """Sums of the first 0, 1, ..., n entries."""
    return torch.nn.functional.pad(x.cumsum(0), (1, 0))


def _gauge_with_columns(sums: LogitSums) -> float:
    """Energy explained by rows and columns alone."""
    if not sums.causal:
        by_rows, by_columns = ((x**2).sum().item() / sums.n for x in (sums.rows, sums.columns))
        return by_rows + by_columns - sums.rows.sum().item() ** 2 / sums.n**2
    rows, columns = _causal_rows_and_columns(sums)
    return (rows @ sums.rows + columns @ sums.columns).item()


def _causal_rows_and_columns(sums: LogitSums) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
    """Row and column effects over the lower triangle: the closed form for lags, with j in the place of d.

    A row sees the columns up to itself as it sees the lags up to itself; a column sees the rows from itself
    on, as a lag does. So the normal equations are the same.
    """
    swapped = LogitSums(sums.energy, sums.rows, sums.columns[:0], sums.columns, True)
    rows, _, columns = causal_rows_and_lags(swapped)
    return rows, columns


def _null(sums: LogitSums) -> float:
    """Expected share for independent entries: degrees of freedom of the lags over those left."""
    n, lags = sums.n, len(sums.diagonals)
    gained = lags - 2 if len(sums.columns) else lags - 1
    left = sums.pairs - (2 * n - 1 if len(sums.columns) else n)
    return gained / left if left > 0 else 1.0
