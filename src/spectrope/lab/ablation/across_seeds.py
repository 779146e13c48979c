"""What several training runs say together: the seed is the unit, and six are the fewest that can say much."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from spectrope.core import ConfigError, numpy_stream
from spectrope.lab.ablation.deposit import Concentration, DepositAnalysis
from spectrope.stats import INDICES, Interval, SeedProportion, seed_bootstrap, seed_proportion, t_interval


@dataclass(frozen=True, kw_only=True)
class SeedIndex:
    """One concentration index over training runs.

    Args:
        index: Its name, a field of `Concentration`.
        layer: Layer, counted from 0, or None for all layers together.
        n_defined: Runs in which it is defined; the intervals are over those.
        t: Student's interval of its mean; None with fewer than two such runs.
        bootstrap: BCa bootstrap interval of the same mean; None likewise.
    """

    index: str
    layer: int | None
    n_defined: int
    t: Interval | None
    bootstrap: Interval | None


@dataclass(frozen=True, kw_only=True)
class SeedSummary:
    """The deposit across training runs that differ in their seed alone.

    Args:
        n_seeds: Training runs.
        any_layer: In how many runs some layer has a deposit.
        by_layer: In how many runs each layer has one.
        indices: Every concentration index, overall and per layer.
    """

    n_seeds: int
    any_layer: SeedProportion
    by_layer: tuple[SeedProportion, ...]
    indices: tuple[SeedIndex, ...]


def across_seeds(runs: Sequence[DepositAnalysis], *, level: float = 0.95) -> SeedSummary:
    """Proportions of runs with a deposit, and intervals of the indices, with the training run as the unit.

    Args:
        runs: One analysis per seed, of models with the same numbers of layers.
        level: Coverage of the intervals.

    Raises:
        ConfigError: If there is no run, or the models differ in depth.
    """
    depths = {len(run.layers) for run in runs}
    if len(depths) != 1:
        raise ConfigError(f"need at least one run, and models of one depth; got depths {sorted(depths)}.")
    (n_layers,) = depths
    layers: list[int | None] = [None, *range(n_layers)]
    return SeedSummary(
        n_seeds=len(runs),
        any_layer=seed_proportion([bool(run.deposits) for run in runs], level),
        by_layer=tuple(seed_proportion([i in run.deposits for run in runs], level) for i in range(n_layers)),
        indices=tuple(_index(runs, name, layer, level) for layer in layers for name in INDICES),
    )


def _index(runs: Sequence[DepositAnalysis], name: str, layer: int | None, level: float) -> SeedIndex:
    intervals = [getattr(_concentration(run, layer), name) for run in runs]
    values = np.array([interval.estimate for interval in intervals if interval is not None])
    few = len(values) < 2
    rng = numpy_stream(0, "across seeds", name, layer)
    return SeedIndex(
        index=name,
        layer=layer,
        n_defined=len(values),
        t=None if few else t_interval(values, level),
        bootstrap=None if few else seed_bootstrap(values, rng, level=level),
    )


def _concentration(run: DepositAnalysis, layer: int | None) -> Concentration:
    return run.overall if layer is None else run.concentration[layer]
