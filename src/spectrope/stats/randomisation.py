"""Randomisation tests: a statistic against its values under random moves that the null hypothesis permits."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from spectrope.core import ConfigError


@dataclass(frozen=True)
class RandomisationTest:
    r"""The outcome of a one-sided test.

    Args:
        statistic: As observed.
        null_mean: Mean under the moves.
        null_quantile: Its 95 % quantile under the moves.
        p_value: :math:`(1 + \#\{\text{null} \ge \text{observed}\})/(1 + \text{draws})`; exact in that its
            size never exceeds the level. Moves that leave the statistic undefined count as reaching it.
        draws: Moves drawn.

    References:
        Testing Statistical Hypotheses (Lehmann and Romano, 2005), Sec. 15.2.
    """

    statistic: float
    null_mean: float
    null_quantile: float
    p_value: float
    draws: int


def randomisation_test(observed: float, null: Float[np.ndarray, " draws"]) -> RandomisationTest:
    """Compare a statistic with its values under random moves; those within rounding of it, and NaN, reach it.

    Raises:
        ConfigError: If there is no draw.
    """
    if not len(null):
        raise ConfigError("draws must be at least 1; got 0.")
    reached = np.count_nonzero(~(null < observed * (1 - 1e-12)))
    return RandomisationTest(
        statistic=observed,
        null_mean=float(np.nanmean(null)),
        null_quantile=float(np.nanquantile(null, 0.95)),
        p_value=(1 + reached) / (1 + len(null)),
        draws=len(null),
    )
