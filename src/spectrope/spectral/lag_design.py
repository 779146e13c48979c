"""Toeplitz shares and lag effects of many small dense logits at once, by one factorised design."""

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Complex, Float, Inexact
from torch import Tensor

from spectrope.spectral.checks import check


@dataclass(frozen=True)
class LagDesign:
    r"""Least squares of :math:`L_{ij} \approx r_i + a_{i-j}` for all logits of one size.

    Rows are regressed out of logits and of lag indicators alike (Frisch and Waugh): what is left of the
    logits has energy E and diagonal sums s, what is left of the indicators the Gram matrix
    :math:`G = \operatorname{diag}(n-|d|) - M^\top \operatorname{diag}(1/c)\,M`, where M says which lags a row
    sees and c how many. Lag effects are :math:`G^+ s` and their share is :math:`s^\top G^+ s / E`. G depends
    on the size alone, so that its O(n³) are spent once; `toeplitz_share` is for one pair of long factors.

    Args:
        n: Number of positions, at least 2.
        causal: Whether query i sees keys j <= i alone; entries above the diagonal are never read.
    """

    n: int
    causal: bool

    def __post_init__(self) -> None:
        check(self.n >= 2, f"row and lag effects need at least two positions; got {self.n}.")

    @property
    def lags(self) -> range:
        """The lags that rows see, ascending."""
        return range(0 if self.causal else 1 - self.n, self.n)

    @property
    def null(self) -> float:
        """Mean of the gauge-fixed share for independent entries."""
        pairs = int(self.allowed.sum())
        return (len(self.lags) - 1) / (pairs - self.n) if pairs > self.n else 1.0

    @cached_property
    def allowed(self) -> Bool[Tensor, "n n"]:
        """Which keys each query sees."""
        every = torch.ones(self.n, self.n, dtype=torch.bool)
        return every.tril() if self.causal else every

    def centred(self, logits: Float[Tensor, "*b n n"]) -> Float[Tensor, "*b n n"]:
        """Logits minus their row means over the keys seen, zero elsewhere: the softmax gauge, fixed."""
        seen = self.seen(logits)
        return torch.where(self.allowed, seen - seen.sum(-1, keepdim=True) / self._row_counts[:, None], 0)

    def raw_shares(self, logits: Float[Tensor, "*b n n"]) -> Float[Tensor, "*b"]:
        r""":math:`\sum_d (n-|d|)\,a_d^2/\|L\|^2` with a the nearest Toeplitz matrix; NaN for zero logits."""
        seen = self.seen(logits)
        return self._explained(seen) / (seen**2).sum((-1, -2))

    def mean_removed_shares(self, logits: Float[Tensor, "*b n n"]) -> Float[Tensor, "*b"]:
        """The same for logits minus their mean over the allowed pairs; NaN where all are equal."""
        seen = self.seen(logits)
        mean = seen.sum((-1, -2), keepdim=True) / self.allowed.sum()
        rest = torch.where(self.allowed, seen - mean, 0)
        return _ratio(self._explained(rest), (rest**2).sum((-1, -2)), (seen**2).sum((-1, -2)))

    def gauge_fixed_shares(self, logits: Float[Tensor, "*b n n"]) -> Float[Tensor, "*b"]:
        """Share of lags in the energy that row effects leave; NaN where they leave nothing."""
        rest = self.centred(logits)
        sums = self.diagonal_sums(rest)
        explained = torch.einsum("...d,de,...e->...", sums, self._inverse, sums)
        return _ratio(explained, (rest**2).sum((-1, -2)), (self.seen(logits) ** 2).sum((-1, -2)))

    def lag_effects(self, logits: Float[Tensor, "*b n n"]) -> Float[Tensor, "*b lags"]:
        """Lag effects beside row effects, in logit units, with mean 0 over lags: rows absorb a constant."""
        return self.diagonal_sums(self.centred(logits)) @ self._inverse

    def seen(self, logits: Inexact[Tensor, "*b n n"]) -> Inexact[Tensor, "*b n n"]:
        """Logits with zeros where attention is not allowed."""
        return torch.where(self.allowed, logits, 0)

    def _explained(self, seen: Tensor) -> Tensor:
        return (self.diagonal_sums(seen) ** 2 / self._lag_counts).sum(-1)

    def diagonal_sums(self, seen: Inexact[Tensor, "*b n n"]) -> Inexact[Tensor, "*b lags"]:
        """Sums over each lag: rows one longer than the matrix turn diagonals into columns."""
        n, shape = self.n, seen.shape[:-2]
        skewed = torch.nn.functional.pad(seen.flip(-1), (0, n)).reshape(*shape, 2 * n * n)[..., :-n]
        sums = skewed.reshape(*shape, n, 2 * n - 1).sum(-2)
        return sums[..., n - 1 :] if self.causal else sums

    @cached_property
    def _row_counts(self) -> Float[Tensor, " n"]:
        return self.allowed.sum(-1).double()

    @cached_property
    def _lag_counts(self) -> Float[Tensor, " lags"]:
        return self.n - torch.tensor(self.lags, dtype=torch.float64).abs()

    @cached_property
    def _inverse(self) -> Float[Tensor, "lags lags"]:
        i = torch.arange(self.n)[:, None]
        key = i - torch.tensor(self.lags)
        member = ((key >= 0) & (key < self.n)).double()
        gram = self._lag_counts.diag() - member.T @ (member / self._row_counts[:, None])
        return torch.linalg.pinv(gram, hermitian=True, rtol=1e-10)


def separation_residuals(
    q: Complex[Tensor, "*b n m"], k: Complex[Tensor, "*b n m"], frequencies: Tensor, design: LagDesign
) -> Float[Tensor, "*b"]:
    r"""Residual of complex logits as content times position, for many short heads at once.

    With :math:`L_c = \sum_t (q^t k^{t*}) \circ E_t` and :math:`G = \sum_t q^t k^{t*}`, the best Toeplitz T in
    :math:`L_c \approx G \circ T` is :math:`T_d = \sum \bar G L_c / \sum |G|^2` over diagonal d; returned is
    :math:`\|L_c - G\circ T\|^2/\|L_c\|^2`, NaN for zero logits. `factorisation_residual` is for one long head
    and for several bands.

    Args:
        q: Pairs of queries before rotation, as complex numbers, with shape (*b, n, m).
        k: Pairs of keys likewise.
        frequencies: Radians per index, with shape (m,).
        design: For n positions.
    """
    phase = torch.exp(1j * torch.outer(torch.arange(design.n, dtype=torch.float64), frequencies))
    content = design.seen(q @ k.mH)
    logits = design.seen((q * phase) @ (k * phase).mH)
    cross, size = design.diagonal_sums(content.conj() * logits), design.diagonal_sums(content.abs() ** 2)
    explained = torch.where(size > 0, cross.abs() ** 2 / size, 0).sum(-1)
    return (1 - explained / (logits.abs() ** 2).sum((-1, -2))).clamp(min=0)


def _ratio(part: Tensor, whole: Tensor, scale: Tensor) -> Tensor:
    """part / whole, or NaN where the whole is rounding noise of `scale`."""
    return torch.where(whole > 1e-13 * scale, part / whole, torch.nan)
