"""Randomisation tests: a statistic and its values under random transformations valid under the null."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from spectrope.core import ConfigError


@dataclass(frozen=True)
class RandomisationTest:
    r"""The outcome of a one-sided test.

    Args:
        statistic: Observed value.
        null_mean: Mean under random transformations.
        null_quantile: 95 % quantile under random transformations.
        p_value: :math:`(1 + \#\{\text{null} \ge \text{observed}\})/(1 + \text{draws})`; exact in that its
            size never exceeds the level. Draws with an undefined statistic count as at least the observed
            one.
        draws: Number of random transformations.

    References:
        Testing Statistical Hypotheses (Lehmann and Romano, 2005), Sec. 15.2.
    """

    statistic: float
    null_mean: float
    null_quantile: float
    p_value: float
    draws: int


def randomisation_test(observed: float, null: Float[np.ndarray, " draws"]) -> RandomisationTest:
    """Compare a statistic with its values under the null; ties up to rounding, and NaN, count as exceeding.

    Raises:
        ConfigError: If there is no draw.
    """
    if not len(null):
        raise ConfigError("draws must be at least 1; got 0.")
    reached = np.count_nonzero(~(null < observed - 1e-12 * abs(observed)))
    return RandomisationTest(
        statistic=observed,
        null_mean=float(np.nanmean(null)),
        null_quantile=float(np.nanquantile(null, 0.95)),
        p_value=(1 + reached) / (1 + len(null)),
        draws=len(null),
    )
