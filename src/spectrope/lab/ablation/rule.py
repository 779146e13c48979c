"""The deposit rule: whether one head dominates a layer, tested on examples that did not select it."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from spectrope.core import ConfigError, numpy_stream
from spectrope.lab.ablation.thresholds import DEFAULT_RULE, FEWEST_JUDGED, Rule
from spectrope.stats import (
    MIN_TOTAL,
    Discordance,
    RatioMoments,
    exceedance_p,
    holm,
    lower_bounds,
    ratio_exceedance_p,
    ratio_lower_bound,
)


@dataclass(frozen=True, kw_only=True)
class LayerRule:
    """Result of the rule for one layer; all values except the choice of the head use the second half.

    Args:
        layer: Layer, counted from 0.
        head: Head with the largest drop on the first half, counted from 0.
        drop: Its drop, in percentage points.
        gap: Its drop minus the largest of the others (0 if none is positive), in percentage points.
        gap_low: One-sided lower bound of the gap.
        share: Its share of the layer's total clipped drop; None where that is under `MIN_TOTAL` points.
        share_low: One-sided lower bound of the share; 0 where undefined.
        p: p-value of "no deposit": the larger of those of the gap and of the share.
        p_adjusted: p after Holm's correction across layers.
        deposit: Whether both bounds reach the rule's thresholds, after that correction as well.
    """

    layer: int
    head: int
    drop: float
    gap: float
    gap_low: float
    share: float | None
    share_low: float
    p: float
    p_adjusted: float
    deposit: bool


@dataclass(frozen=True)
class _Evidence:
    """One layer's figures before layers are compared; the fields are those of `LayerRule`."""

    head: int
    drop: float
    gap: float
    gap_low: float
    share: float | None
    share_low: float
    p: float


def judge(
    intact: Bool[np.ndarray, " n"],
    ablated: Bool[np.ndarray, "layers heads n"],
    *,
    seed: int = 0,
    rule: Rule = DEFAULT_RULE,
) -> tuple[LayerRule, ...]:
    r"""Apply the deposit rule to every layer.

    The examples are split at random. The first half selects the head, so that the second is free of selection
    bias.
    *Gap*: :math:`d_1 - \max(0, \max_h d_h)`, whose lower bound is the smallest of the bounds against each
    rival and needs no correction for their number (an intersection-union test). *Share*: Fieller's bound of
    :math:`d_1/\sum_{h: d_h > 0} d_h`; taking the heads with positive drops on the same half can only enlarge
    the denominator. A deposit needs both, so the larger p-value counts, and Holm's correction across layers
    keeps the chance of any false deposit below 1 - level.

    Args:
        intact: Whether the intact model is correct on each example.
        ablated: Whether the model without each head is correct on each example.
        seed: Seed of the random split.
        rule: Thresholds of the rule.

    Raises:
        ConfigError: If there are fewer than `FEWEST_JUDGED` examples.
    """
    n = len(intact)
    if n < FEWEST_JUDGED:
        raise ConfigError(
            f"the deposit rule needs at least {FEWEST_JUDGED} examples, two for each half; got {n}."
        )
    order = numpy_stream(seed, "deposit", "halves").permutation(n)
    choosing, judging = order[: n // 2], order[n // 2 :]
    heads = drops(intact[choosing], ablated[..., choosing]).argmax(-1)
    evidence = [
        _weigh(intact[judging], layer[:, judging], int(h), rule)
        for layer, h in zip(ablated, heads, strict=True)
    ]
    adjusted = holm(np.array([layer.p for layer in evidence]))
    return tuple(
        _decide(i, layer, float(p), rule) for i, (layer, p) in enumerate(zip(evidence, adjusted, strict=True))
    )


def drops(
    intact: Bool[np.ndarray, " n"], ablated: Bool[np.ndarray, "*heads n"]
) -> Float[np.ndarray, "*heads"]:
    """Intact minus ablated accuracy, in percentage points."""
    return 100 * (np.count_nonzero(intact) - np.count_nonzero(ablated, axis=-1)) / len(intact)


def _weigh(intact: np.ndarray, ablated: np.ndarray, head: int, rule: Rule) -> _Evidence:
    """Gap and share of one head in one layer, from examples that did not select it."""
    fallen = drops(intact, ablated)
    rivals = np.concatenate([np.delete(ablated, head, axis=0), intact[None]])
    pairs = Discordance.of(rivals, ablated[head])
    gap_low = 100 * float(lower_bounds(pairs, rule.level).min())
    gap_p = float(exceedance_p(pairs, rule.gap / 100).max())
    share, share_low, share_p = _share(intact, ablated, head, fallen, rule)
    gap = 100 * float(pairs.difference.min())
    return _Evidence(head, float(fallen[head]), gap, gap_low, share, share_low, max(gap_p, share_p))


def _share(
    intact: np.ndarray, ablated: np.ndarray, head: int, fallen: np.ndarray, rule: Rule
) -> tuple[float | None, float, float]:
    """Share of a head's drop in the layer's, its lower bound and its p-value."""
    total = float(np.maximum(fallen, 0.0).sum())
    if total < MIN_TOTAL:
        return None, 0.0, 1.0
    part = intact.astype(np.int64) - ablated[head]
    whole = (fallen > 0).sum() * intact.astype(np.int64) - np.count_nonzero(ablated[fallen > 0], axis=0)
    moments = RatioMoments.of(part, whole)
    bound, p = ratio_lower_bound(moments, rule.level), ratio_exceedance_p(moments, rule.share)
    return max(float(fallen[head]), 0.0) / total, bound, p


def _decide(layer: int, evidence: _Evidence, p_adjusted: float, rule: Rule) -> LayerRule:
    """Both bounds reach their thresholds, and still do once layers are corrected for."""
    reached = evidence.gap_low >= rule.gap and evidence.share_low >= rule.share
    deposit = reached and p_adjusted <= 1 - rule.level
    return LayerRule(layer=layer, **vars(evidence), p_adjusted=p_adjusted, deposit=deposit)
