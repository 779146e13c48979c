"""The table "deposit": the deposit rule and concentration indices of each layer."""

from dataclasses import asdict, dataclass

import numpy as np
import polars as pl
from jaxtyping import Bool

from spectrope.core import numpy_stream
from spectrope.lab.ablation.rule import drops, judge
from spectrope.stats import (
    INDICES,
    Interval,
    ends,
    index_ranges,
    indices,
    reflected_intervals,
    resampled_means,
)

RESAMPLES, LEVEL = 2000, 0.95  # Of the bootstrap, and coverage of its intervals.


@dataclass(frozen=True, kw_only=True)
class Concentration:
    """Concentration of drops over heads; None if they total less than 2 points.

    Intervals are basic bootstrap intervals over examples. Because noise makes small drops look uneven, the
    indices of a layer with small drops are biased towards concentration; the deposit rule is not.

    Args:
        max_share: Largest share of the total drop.
        gini: Gini index of the shares, from 0 to 1 - 1/heads.
        effective_participation: Effective number of heads, the inverse participation ratio.
        effective_entropy: Effective number of heads, the exponential of the entropy.
    """

    max_share: Interval | None
    gini: Interval | None
    effective_participation: Interval | None
    effective_entropy: Interval | None


def concentrations(
    intact: Bool[np.ndarray, " n"], ablated: Bool[np.ndarray, "layers heads n"], *, seed: int = 0
) -> tuple[Concentration, ...]:
    """The indices of each layer, from one exact sweep over all examples.

    Args:
        intact: Whether the intact model is correct on each example.
        ablated: Whether the model without each head is correct on each example.
        seed: Seed of the resamples.
    """
    n_layers, n_heads, n = ablated.shape
    differences = (intact.astype(np.int8) - ablated.astype(np.int8)).reshape(-1, n).T
    rng = numpy_stream(seed, "deposit", "resamples")
    draws = 100 * resampled_means(differences, RESAMPLES, rng).reshape(-1, n_layers, n_heads)
    estimates = indices(drops(intact, ablated))
    intervals = reflected_intervals(estimates, indices(draws), LEVEL).clipped(*index_ranges(n_heads))
    return tuple(
        Concentration(**{name: intervals.at(layer, i) for i, name in enumerate(INDICES)})
        for layer in range(n_layers)
    )


def deposit_table(
    intact: Bool[np.ndarray, " n"], ablated: Bool[np.ndarray, "layers heads n"], *, seed: int = 0
) -> pl.DataFrame:
    """One row per layer, counted from 0: the deposit rule and concentration indices.

    Args:
        intact: Whether the intact model is correct on each example.
        ablated: Whether the model without each head is correct on each example.
        seed: Seed of the split into halves and of the resamples.

    Raises:
        ConfigError: If there are fewer than `FEWEST_JUDGED` examples.
    """
    layers = judge(intact, ablated, seed=seed)
    rows = [
        asdict(layer) | _columns(concentration)
        for layer, concentration in zip(layers, concentrations(intact, ablated, seed=seed), strict=True)
    ]
    return pl.DataFrame(rows, infer_schema_length=None)


def _columns(concentration: Concentration) -> dict[str, float | None]:
    values: dict[str, float | None] = {}
    for name, interval in vars(concentration).items():
        values |= ends(name, interval)
    return values
