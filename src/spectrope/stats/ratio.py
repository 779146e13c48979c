"""Ratio of two means of paired observations."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Num
from scipy import stats

from spectrope.core import ConfigError


@dataclass(frozen=True)
class RatioMoments:
    """Means of numerator and denominator over n paired observations, and the covariance of those means."""

    a: float
    b: float
    var_a: float
    var_b: float
    cov: float
    n: int

    @classmethod
    def of(cls, numerator: Num[np.ndarray, " n"], denominator: Num[np.ndarray, " n"]) -> "RatioMoments":
        """Moments of at least two paired observations."""
        n = len(numerator)
        (var_a, cov), (_, var_b) = np.cov(numerator, denominator) / n
        return cls(
            float(numerator.mean()), float(denominator.mean()), float(var_a), float(var_b), float(cov), n
        )


def ratio_exceedance_p(moments: RatioMoments, ratio: float) -> float:
    r"""One-sided p-value of :math:`a/b \le \rho`: a t test of :math:`a - \rho b > 0`.

    Raises:
        ConfigError: If the denominator's mean b is not positive, so that the test says nothing of the ratio.
    """
    m = _with_positive_denominator(moments)
    variance = m.var_a - 2 * ratio * m.cov + ratio**2 * m.var_b
    return float(stats.t.sf(_standardised(m.a - ratio * m.b, variance), m.n - 1))


def ratio_lower_bound(moments: RatioMoments, level: float = 0.95) -> float:
    r"""Fieller's one-sided lower bound of a ratio :math:`a/b \ge 0`; inverts `ratio_exceedance_p`.

    The smallest :math:`\rho \ge 0` with :math:`a - \rho b \le t\sqrt{V_a - 2\rho C + \rho^2 V_b}`, a root
    of a quadratic; 0 if the numerator is not significantly above 0, as a negative one never is.

    Raises:
        ConfigError: If the level is not from 0.5 up to below 1, or the denominator's mean is not positive.

    References:
        Some Problems in Interval Estimation (Fieller, 1954).
    """
    if not 0.5 <= level < 1:
        raise ConfigError(f"level must be from 0.5 up to below 1; got {level:g}.")
    m, t2 = _with_positive_denominator(moments), stats.t.ppf(level, moments.n - 1) ** 2
    if m.a <= 0 or m.a**2 <= t2 * m.var_a:
        return 0.0
    # alpha rho^2 - 2 beta rho + gamma, positive at rho = 0; its smaller positive root in a stable form.
    alpha, beta, gamma = m.b**2 - t2 * m.var_b, m.a * m.b - t2 * m.cov, m.a**2 - t2 * m.var_a
    root = np.sqrt(max(beta**2 - alpha * gamma, 0.0))
    return float(gamma / (beta + root)) if beta + root > 0 else 0.0


def _with_positive_denominator(moments: RatioMoments) -> RatioMoments:
    if moments.b <= 0:
        raise ConfigError(f"the denominator's mean must be positive; got {moments.b:g}.")
    return moments


def _standardised(difference: float, variance: float) -> float:
    """Difference over its standard error; infinite where all observations agree."""
    if variance <= 0:
        return float(np.copysign(np.inf, difference)) if difference != 0 else 0.0
    return difference / np.sqrt(variance)
