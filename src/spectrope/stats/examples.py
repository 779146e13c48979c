"""Intervals over examples, for means and for statistics of all examples together."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float, Int
from scipy import stats

from spectrope.core import ConfigError
from spectrope.stats.interval import Intervals, require_level


def mean_intervals(values: Float[np.ndarray, "n *k"], level: float = 0.95) -> Intervals:
    """Student's intervals of means over n examples; undefined where one of the values is.

    Raises:
        ConfigError: If there are fewer than two examples, or the level does not lie between 0 and 1.
    """
    if len(values) < 2:
        raise ConfigError(f"an interval over examples needs at least 2 of them; got {len(values)}.")
    mean = np.asarray(values.mean(0))
    error = np.asarray(values.std(0, ddof=1) / len(values) ** 0.5)
    return _t_intervals(mean, error, len(values) - 1, level, "t over examples")


def jackknife_intervals(
    statistic: Callable[[Int[np.ndarray, " m"]], Float[np.ndarray, "*k"]],
    n: int,
    groups: int = 20,
    level: float = 0.95,
) -> Intervals:
    r"""Intervals of statistics of n examples by leaving out one of g groups of them at a time.

    With :math:`\hat\theta_{(j)}` the value without group j, the squared standard error is
    :math:`\frac{g-1}{g}\sum_j(\hat\theta_{(j)} - \bar\theta)^2`, and intervals are Student's with g - 1
    degrees of freedom. Use it for statistics for which a bootstrap fails because it draws examples
    repeatedly, such as the residual of a fit with many parameters.

    Args:
        statistic: Function of the indices of the examples used; called g + 1 times.
        n: Number of examples.
        groups: Number g of groups, at most n; example i is in group i mod g.
        level: Nominal coverage of each interval.

    Raises:
        ConfigError: If there are fewer than two groups, or the level does not lie between 0 and 1.

    References:
        The Jackknife and Bootstrap (Shao and Tu, 1995), Sec. 2.3.
    """
    g = min(groups, n)
    if g < 2:
        raise ConfigError(f"a jackknife needs at least 2 groups of examples; got {g}.")
    index = np.arange(n)
    without = np.stack([statistic(index[index % g != group]) for group in range(g)])
    error = np.asarray(np.sqrt((g - 1) * without.var(0)))
    return _t_intervals(statistic(index), error, g - 1, level, "jackknife over groups of examples")


def _t_intervals(
    estimate: np.ndarray, error: np.ndarray, degrees: int, level: float, method: str
) -> Intervals:
    require_level(level)
    half = stats.t.ppf((1 + level) / 2, degrees) * error
    ends = (np.asarray(value) for value in (estimate, estimate - half, estimate + half))
    return Intervals(**dict(zip(("estimate", "low", "high"), ends, strict=True)), level=level, method=method)
