"""Bootstrap over examples for functions of many correlated means.

For a single smooth statistic of a small sample, use `scipy.stats.bootstrap`.
"""

import numpy as np
from jaxtyping import Float, Float32, Num

from spectrope.stats.interval import Intervals, require_level


def resampled_means(
    values: Num[np.ndarray, "n k"], n_resamples: int, rng: np.random.Generator, block: int = 128
) -> Float[np.ndarray, "r k"]:
    """Means of k columns over resamples of their n rows; columns are resampled together.

    Multinomial weights times values, in blocks of resamples: one matrix product in place of n_resamples
    copies of the data. Small integers, such as differences of correctness, are summed exactly.

    Args:
        values: One row per example.
        n_resamples: Number of resamples r.
        rng: Random generator.
        block: Resamples held in memory at once.
    """
    dtype = np.float32 if _exact_in_float32(values) else np.float64
    columns = values.astype(dtype)
    means = np.empty((n_resamples, values.shape[1]))
    for start in range(0, n_resamples, block):
        rows = means[start : start + block]
        rows[:] = _weights(len(values), len(rows), rng).astype(dtype) @ columns
    return means / len(values)


def reflected_intervals(
    estimate: Float[np.ndarray, "*m"], draws: Float[np.ndarray, "r *m"], level: float = 0.95
) -> Intervals:
    r"""Basic bootstrap intervals: :math:`2\hat\theta - q` for quantiles q, stretched to the estimate.

    Maxima, shares and Gini indices are biased by sampling noise, and resampling adds the same bias again.
    Reflection subtracts it once, whereas a percentile interval contains it twice. In simulations with 8 or
    16 heads, the coverage at a nominal 95 % was 79 to 100 %, lowest where heads tie (percentile and BCa
    intervals: down to 0). The exception is the Gini index, with a coverage of 33 to 92 % where many heads tie
    or lie within noise of 0, and 92 % or more elsewhere.

    Args:
        estimate: The statistics of the data themselves; NaN where undefined.
        draws: The same statistics of r resamples; NaN where undefined.
        level: Nominal coverage of each interval.

    Returns:
        Intervals, undefined where the estimate is undefined or where more draws are undefined than one tail
        contains.

    References:
        Bootstrap Methods and their Application (Davison and Hinkley, 1997), Sec. 5.2.1.
    """
    require_level(level)
    tail = (1 - level) / 2
    known = ~np.isnan(estimate) & (np.isnan(draws).mean(0) <= tail)
    low, high = np.nanquantile(np.where(known, draws, 0.0), [tail, 1 - tail], axis=0)
    return Intervals(
        estimate=np.where(known, estimate, np.nan),
        low=np.where(known, np.minimum(2 * estimate - high, estimate), np.nan),
        high=np.where(known, np.maximum(2 * estimate - low, estimate), np.nan),
        level=level,
        method="basic bootstrap over examples",
    )


def _weights(n: int, rows: int, rng: np.random.Generator) -> Float32[np.ndarray, "rows n"]:
    """How often each of n examples occurs in each of `rows` resamples."""
    drawn = rng.integers(0, n, size=(rows, n), dtype=np.int64)
    drawn += n * np.arange(rows)[:, None]
    return np.bincount(drawn.ravel(), minlength=rows * n).reshape(rows, n).astype(np.float32)


def _exact_in_float32(values: np.ndarray) -> bool:
    """Whether sums of n of these values are integers below 2**24."""
    whole = values.dtype.kind in "biu"
    return whole and bool(
        len(values) * np.abs(values, dtype=np.int64, casting="unsafe").max(initial=1) < 2**24
    )
