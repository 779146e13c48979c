"""Several tests at once."""

import numpy as np
from jaxtyping import Float

from spectrope.core.errors import ConfigError


def holm(p: Float[np.ndarray, " m"]) -> Float[np.ndarray, " m"]:
    r"""Holm's adjusted p-values: rejecting those at most :math:`\alpha` keeps the family-wise error there.

    With p-values in ascending order, :math:`\tilde p_{(i)} = \max_{j \le i} \min(1, (m - j + 1)\,p_{(j)})`.
    Valid under any dependence, and never weaker than Bonferroni's. (For the false discovery rate there is
    `scipy.stats.false_discovery_control`.)

    Args:
        p: One p-value per hypothesis.

    Raises:
        ConfigError: If one of them is no probability.

    References:
        A Simple Sequentially Rejective Multiple Test Procedure (Holm, 1979).
    """
    if not ((p >= 0) & (p <= 1)).all():
        raise ConfigError(f"p-values must lie between 0 and 1; got {p.tolist()}.")
    order = np.argsort(p, kind="stable")
    steps = np.minimum(1.0, p[order] * np.arange(len(p), 0, -1))
    adjusted = np.empty_like(p)
    adjusted[order] = np.maximum.accumulate(steps)
    return adjusted
