"""How much of the logits is Toeplitz: raw, without the mean, and beyond what softmax ignores."""

from dataclasses import dataclass

from torch import Tensor

from spectrope.spectral.anova import LagEffects, LogitSums, fit_lag_effects, ratio
from spectrope.spectral.checks import check, factors


@dataclass(frozen=True)
class ToeplitzShare:
    r"""Shares of energy, as fractions; not a number where nothing is left to explain.

    Args:
        raw: :math:`\tau = \sum_d (n-|d|)\,a_d^2 / \|L\|^2`, a the nearest Toeplitz matrix.
        null: Mean of `raw` for independent entries of mean 0: (2n-1)/n² in full, 2/(n+1) if causal.
        mean_removed: τ of the logits minus their mean over the allowed pairs.
        mean_removed_null: Its mean for independent entries: one degree of freedom less above and below.
        gauge_fixed: Share of lags beyond row effects, which softmax ignores; the headline.
        gauge_fixed_null: Its mean for independent entries.
    """

    raw: float
    null: float
    mean_removed: float
    mean_removed_null: float
    gauge_fixed: float
    gauge_fixed_null: float

    @property
    def calibrated(self) -> float:
        """(raw - null) / (1 - null): 0 for independent entries on average, 1 for a Toeplitz matrix."""
        return ratio(self.raw - self.null, 1 - self.null, 1.0)

    @property
    def calibrated_mean_removed(self) -> float:
        """The same for `mean_removed`."""
        return ratio(self.mean_removed - self.mean_removed_null, 1 - self.mean_removed_null, 1.0)

    @property
    def calibrated_gauge_fixed(self) -> float:
        """The same for `gauge_fixed`."""
        return ratio(self.gauge_fixed - self.gauge_fixed_null, 1 - self.gauge_fixed_null, 1.0)


def toeplitz_share(q: Tensor, k: Tensor, causal: bool = False) -> ToeplitzShare:
    """Toeplitz shares of the logits QK^T in O(dn log n), never forming them.

    Args:
        q: Queries as they enter the product, rotated where there is a rotation, with shape (n, d).
        k: Keys likewise, with shape (n, d).
        causal: Whether query i sees keys j <= i alone.

    Raises:
        ConfigError: If there are fewer than two positions, or all logits are zero.
    """
    q, k = factors(q, k)
    sums = LogitSums.of_product(q, k, causal)
    centred = LogitSums.of_product(q, k - k.mean(0), causal)
    return shares(sums, fit_lag_effects(centred))


def toeplitz_share_of_matrix(logits: Tensor, causal: bool = False) -> ToeplitzShare:
    """Toeplitz shares of dense real logits, or of a pattern, of shape (n, n)."""
    sums = LogitSums.of_matrix(logits, causal)
    return shares(sums, fit_lag_effects(sums))


def shares(sums: LogitSums, effects: LagEffects) -> ToeplitzShare:
    """The record from sums over the logits and from their fitted lag effects."""
    check(sums.energy > 0, "logits must not all be zero: shares of no energy are undefined.")
    lags, pairs = len(sums.diagonals), sums.pairs
    explained = (sums.diagonals**2 / sums.lag_counts).sum().item()
    mean = sums.rows.sum().item() ** 2 / pairs
    return ToeplitzShare(
        raw=explained / sums.energy,
        null=lags / pairs,
        mean_removed=ratio(explained - mean, sums.energy - mean, sums.energy),
        mean_removed_null=(lags - 1) / (pairs - 1),
        gauge_fixed=effects.share,
        gauge_fixed_null=effects.null,
    )
