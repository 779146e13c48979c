"""Whether one head carries a layer: concentration of drops, the deposit rule, and where the deposit sits."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from spectrope.core import numpy_stream
from spectrope.lab.ablation.rule import LayerRule, drops, judge
from spectrope.lab.ablation.thresholds import DEFAULT_RULE, Rule
from spectrope.stats import (
    INDICES,
    Discordance,
    Interval,
    Intervals,
    difference_intervals,
    index_ranges,
    indices,
    mcnemar_p,
    reflected_intervals,
    resampled_means,
    shares,
)


@dataclass(frozen=True, kw_only=True)
class Concentration:
    """How unevenly drops are spread over heads; None where they total less than 2 points.

    Intervals are basic bootstraps over examples. Noise alone makes small drops look uneven, so the
    indices of a layer with little drop are biased towards concentration; the deposit rule is not.

    Args:
        max_share: Largest share of the total drop.
        gini: Gini index of the shares, from 0 to 1 - 1/heads.
        effective_participation: Effective number of heads, as inverse participation ratio.
        effective_entropy: Effective number of heads, as exponential of the entropy.
    """

    max_share: Interval | None
    gini: Interval | None
    effective_participation: Interval | None
    effective_entropy: Interval | None


@dataclass(frozen=True, kw_only=True)
class DepthProfile:
    """How drops are spread over layers.

    Args:
        share: Share of each layer in the total clipped drop of all heads; None where undefined.
        mean_layer: Mean layer, counted from 0 and weighted by those shares.
        strongest: Layer of the single largest drop.
        certainty: Fraction of bootstrap resamples in which the largest drop sits in that layer.
    """

    share: tuple[Interval | None, ...]
    mean_layer: Interval | None
    strongest: int
    certainty: float


@dataclass(frozen=True, kw_only=True)
class HeadEffect:
    """What one head's removal costs.

    Args:
        layer: Layer, counted from 0.
        head: Head, counted from 0.
        drop: Intact minus ablated accuracy, in percentage points.
        p: McNemar's exact two-sided p-value of no difference, for this head by itself.
    """

    layer: int
    head: int
    drop: Interval
    p: float


@dataclass(frozen=True, kw_only=True)
class DepositAnalysis:
    """All that the ablation of every head of one training run says about concentration.

    Args:
        n_examples: Held-out examples.
        intact_accuracy: Accuracy with no head removed, as a fraction.
        effects: One entry per head, layer by layer.
        layers: The rule's finding for each layer, on halves of the examples.
        concentration: Indices of each layer, on all examples.
        overall: Indices over the heads of all layers together.
        depth: Where the drops sit.
    """

    n_examples: int
    intact_accuracy: float
    effects: tuple[HeadEffect, ...]
    layers: tuple[LayerRule, ...]
    concentration: tuple[Concentration, ...]
    overall: Concentration
    depth: DepthProfile

    @property
    def deposits(self) -> tuple[int, ...]:
        """Layers that have a deposit, counted from 0."""
        return tuple(layer.layer for layer in self.layers if layer.deposit)


def analyse(
    intact: Bool[np.ndarray, " n"],
    ablated: Bool[np.ndarray, "layers heads n"],
    *,
    seed: int = 0,
    rule: Rule = DEFAULT_RULE,
    level: float = 0.95,
    n_resamples: int = 2000,
) -> DepositAnalysis:
    """Every index, interval and finding from one exact sweep over held-out examples.

    Args:
        intact: Whether the intact model is right on each example.
        ablated: The same without each head.
        seed: Names the split into halves and the resamples.
        rule: What counts as a deposit.
        level: Coverage of the intervals.
        n_resamples: Bootstrap resamples.

    Raises:
        ConfigError: If there are fewer than 4 examples.
    """
    layers = judge(intact, ablated, seed=seed, rule=rule)
    n_layers, n_heads, n = ablated.shape
    differences = (intact.astype(np.int8) - ablated.astype(np.int8)).reshape(-1, n).T
    rng = numpy_stream(seed, "deposit", "resamples")
    draws = 100 * resampled_means(differences, n_resamples, rng).reshape(-1, n_layers, n_heads)
    observed = drops(intact, ablated)
    by_layer = _index_intervals(observed, draws, level)
    overall = _index_intervals(observed.ravel(), draws.reshape(len(draws), -1), level)
    return DepositAnalysis(
        n_examples=n,
        intact_accuracy=float(intact.mean()),
        effects=_effects(intact, ablated, level),
        layers=layers,
        concentration=tuple(_concentration(by_layer, layer) for layer in range(n_layers)),
        overall=_concentration(overall),
        depth=_depth(observed, draws, level),
    )


def _effects(intact: np.ndarray, ablated: np.ndarray, level: float) -> tuple[HeadEffect, ...]:
    pairs = Discordance.of(intact, ablated)
    intervals, p = difference_intervals(pairs, level).scaled(100), mcnemar_p(pairs)
    effects = []
    for layer, head in np.ndindex(p.shape):
        drop = intervals.at(layer, head)
        assert drop is not None  # A difference of proportions always exists.
        effects.append(HeadEffect(layer=layer, head=head, drop=drop, p=float(p[layer, head])))
    return tuple(effects)


def _index_intervals(
    observed: Float[np.ndarray, "*b h"], draws: Float[np.ndarray, "r *b h"], level: float
) -> Intervals:
    intervals = reflected_intervals(indices(observed), indices(draws), level)
    return intervals.clipped(*index_ranges(observed.shape[-1]))


def _concentration(intervals: Intervals, *layer: int) -> Concentration:
    return Concentration(**{name: intervals.at(*layer, i) for i, name in enumerate(INDICES)})


def _depth(
    observed: Float[np.ndarray, "layers heads"], draws: Float[np.ndarray, "r layers heads"], level: float
) -> DepthProfile:
    share, drawn = _layer_shares(observed), _layer_shares(draws)
    layers = np.arange(len(observed))
    spread = reflected_intervals(share, drawn, level).clipped(0.0, 1.0)
    mean = reflected_intervals(np.asarray(share @ layers), drawn @ layers, level).clipped(
        0.0, float(layers[-1])
    )
    strongest = observed.max(-1).argmax()
    return DepthProfile(
        share=tuple(spread.at(layer) for layer in layers.tolist()),
        mean_layer=mean.at(),
        strongest=int(strongest),
        certainty=float((draws.max(-1).argmax(-1) == strongest).mean()),
    )


def _layer_shares(drops: Float[np.ndarray, "*b layers heads"]) -> Float[np.ndarray, "*b layers"]:
    """Share of each layer in the clipped drops of all heads; NaN where they total too little."""
    return shares(np.maximum(drops, 0.0).sum(-1))
