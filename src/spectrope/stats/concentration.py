r"""Concentration indices of h shares :math:`s_h \ge 0`, :math:`\sum s_h = 1`."""

import numpy as np
from jaxtyping import Float, Num
from scipy.special import entr

Reduced = Float[np.ndarray, "*b"] | np.float64  # NumPy reduces a vector to a scalar, not to an array.
MIN_TOTAL = 2.0  # Total drop of a layer, in percentage points, below which shares are undefined.


def shares(drops: Num[np.ndarray, "*b h"], min_total: float = MIN_TOTAL) -> Float[np.ndarray, "*b h"]:
    r"""Shares :math:`s_h = d_h^+ / \sum_g d_g^+` of drops clipped at 0.

    Args:
        drops: Accuracy drops in percentage points, heads last; negative ones count as 0.
        min_total: Smallest total, in percentage points, for which shares are defined.

    Returns:
        Shares that sum to 1, or NaN throughout where the clipped drops total less than `min_total`.
    """
    clipped = np.maximum(drops, 0.0)
    total = clipped.sum(-1, keepdims=True)
    defined = (total >= min_total) & (total > 0)
    return np.divide(clipped, total, out=np.full(clipped.shape, np.nan), where=defined)


def max_share(s: Float[np.ndarray, "*b h"]) -> Reduced:
    """The largest share: 1/h if all are equal, 1 if one head has everything."""
    return s.max(-1)


def gini(s: Float[np.ndarray, "*b h"]) -> Reduced:
    r"""Gini index :math:`\frac1h\sum_i (2i - h - 1)\,s_{(i)}` of shares in ascending order.

    It is 0 if all are equal and :math:`1 - 1/h` if one head has everything (no small-sample correction).

    References:
        Variabilità e mutabilità (Gini, 1912).
    """
    h = s.shape[-1]
    ranks = 2.0 * np.arange(1, h + 1) - h - 1
    return (np.sort(s, axis=-1) * ranks).sum(-1) / h


def inverse_participation(s: Float[np.ndarray, "*b h"]) -> Reduced:
    r"""Effective number of heads :math:`1/\sum_h s_h^2`, from 1 to h (the inverse of Simpson's index)."""
    return 1 / (s * s).sum(-1)


def exponential_entropy(s: Float[np.ndarray, "*b h"]) -> Reduced:
    r"""Effective number of heads :math:`\exp(-\sum_h s_h \ln s_h)`, from 1 to h.

    It is at least `inverse_participation`; these are the Hill numbers of order 1 and 2.

    References:
        Diversity and Evenness (Hill, 1973), Eq. 4.
    """
    return np.exp(entr(s).sum(-1))


INDICES = {
    "max_share": max_share,
    "gini": gini,
    "effective_participation": inverse_participation,
    "effective_entropy": exponential_entropy,
}


def indices(drops: Num[np.ndarray, "*b h"], min_total: float = MIN_TOTAL) -> Float[np.ndarray, "*b m"]:
    """All `INDICES`, in order, of drops in percentage points; NaN where shares are undefined."""
    s = shares(drops, min_total)
    return np.stack([index(s) for index in INDICES.values()], axis=-1)


def index_ranges(h: int) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, " m"]]:
    """Least and greatest value of each of `INDICES` over h heads."""
    return np.array([1 / h, 0.0, 1.0, 1.0]), np.array([1.0, 1 - 1 / h, h, h])
