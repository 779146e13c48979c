"""Adaptive sweep: use only as many examples per head as a decision requires."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from spectrope.core import ConfigError, Progress, Watch, numpy_stream, unwatched
from spectrope.lab.ablation.engine import correctness
from spectrope.lab.ablation.fills.base import needs_of
from spectrope.lab.ablation.gather import derangement, means_for
from spectrope.lab.ablation.interventions import Variant
from spectrope.lab.ablation.protocols import CONTROLLED, Protocol
from spectrope.lab.ablation.tree import fills_of
from spectrope.lab.evaluation.score import IGNORED, counted_labels
from spectrope.models import Decoder
from spectrope.stats import Aim, Interval, confidence_sequence
from spectrope.tasks import Batch

FIRST_LOOK = 64  # Examples before the first look.
GROWTH = 1.1  # Factor between the numbers of examples at successive looks.


@dataclass(frozen=True, kw_only=True)
class AdaptiveDrop:
    """The drop of one head when its sampling stops; layers and heads count from 0.

    Args:
        layer: Layer of the head.
        head: Its number within the layer.
        drop: Intact minus ablated accuracy over the whole data set, in percentage points. The interval is
            valid at any stopping time; the estimate is that of the examples used.
        n: Number of examples used.
    """

    layer: int
    head: int
    drop: Interval
    n: int


@dataclass(frozen=True, kw_only=True)
class AdaptiveSweep:
    """The result of an adaptive sweep.

    Args:
        drops: One entry per head, layer by layer.
        intact: Accuracy of the intact model on the examples used, as a fraction.
        population: Number of all held-out examples, to whose accuracy the intervals refer.
        head_forwards: Number of heads times examples computed.
        saving: Cost of an exact sweep over all held-out examples, divided by the cost of this one.
        simultaneous: Whether the intervals hold for all heads at once, rather than for each by itself.
    """

    drops: tuple[AdaptiveDrop, ...]
    intact: float
    population: int
    head_forwards: int
    saving: float
    simultaneous: bool


def adaptive_sweep(
    model: Decoder,
    data: Batch,
    aim: Aim,
    *,
    protocol: Protocol = CONTROLLED,
    level: float = 0.95,
    simultaneous: bool = True,
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
    watch: Watch = unwatched,
) -> AdaptiveSweep:
    """Sample examples without replacement until the interval of every head meets the stopping criterion.

    Args:
        model: A trained decoder.
        data: Held-out examples; examples with an ignored label are skipped.
        aim: `TargetPrecision(0.005)` for ±0.5 points, `Threshold(0.05)` for whether |drop| exceeds 5 points.
        protocol: Ablation protocol.
        level: Confidence level.
        simultaneous: Whether the level applies to all heads' intervals jointly, by a union bound, or to each.
        dtype: Precision of matrix products.
        seed: Seed of the order of the examples.
        watch: Progress callback, called with the number of decided heads.

    Raises:
        ConfigError: If every label is ignored.
    """
    data = data[counted_labels(model, data.labels) != IGNORED]
    variants = protocol.variants(model.config)
    alpha = (1 - level) / (len(variants) if simultaneous else 1)
    ledger = sampled(model, data, variants, aim, alpha=alpha, dtype=dtype, seed=seed, watch=watch)
    return ledger.summary(model.config.n_heads, level, simultaneous)


def sampled(
    model: Decoder,
    data: Batch,
    variants: Sequence[Variant],
    aim: Aim,
    *,
    alpha: float,
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
    watch: Watch = unwatched,
) -> "Ledger":
    """Sample examples without replacement until the interval of every variant meets the stopping criterion.

    Args:
        model: A trained decoder.
        data: Examples without ignored labels.
        variants: What to change; each has its own interval.
        aim: Stopping criterion.
        alpha: Error probability of each interval.
        dtype: Precision of matrix products.
        seed: Seed of the order of the examples.
        watch: Progress callback, called with the number of decided variants.

    Raises:
        ConfigError: If there is no example.
    """
    if not len(data):
        raise ConfigError("an adaptive sweep needs an example whose label is not ignored; got none.")
    needs = needs_of(fills_of(variants))
    means = means_for(needs, model, data, dtype)
    donors = data[derangement(len(data), seed)] if "donors" in needs else None
    order = torch.from_numpy(numpy_stream(seed, "ablation", "order").permutation(len(data)))
    ledger = Ledger.blank(len(variants), len(data), aim, alpha)
    for stop in looks(len(data)):
        fresh = order[ledger.seen : stop]
        wanted = [(), *(variants[place] for place in ledger.open)]
        others = None if donors is None else donors[fresh]
        ledger.enter(correctness(model, data[fresh], wanted, dtype=dtype, means=means, donors=others).numpy())
        watch(Progress("ablate", len(variants) - len(ledger.open), len(variants)))
        if not len(ledger.open):
            break
    return ledger


def looks(n: int, first: int = FIRST_LOOK, step: int = 1) -> Iterator[int]:
    """Numbers of examples at which intervals are evaluated; the last is n.

    Args:
        n: All examples.
        first: Examples before the first look.
        step: Least evaluation interval, in examples.
    """
    look = max(first, step)
    while look < n:
        yield look
        look = max(math.ceil(GROWTH * look), look + step)
    yield n


@dataclass
class Ledger:
    """Observations so far, and the heads that are still undecided.

    Args:
        aim: Stopping rule of a head.
        alpha: Error probability of each head's interval.
        differences: Intact minus ablated correctness, 0 where not computed, with shape (heads, n).
        used: Examples used for each head, with shape (heads,).
        low: Lower ends of the intervals, as fractions.
        high: Upper ends.
        open: Heads still to be decided.
        seen: Examples seen.
        right: How many of them the intact model gets right.
    """

    aim: Aim
    alpha: float
    differences: np.ndarray
    used: np.ndarray
    low: np.ndarray
    high: np.ndarray
    open: np.ndarray
    seen: int = 0
    right: float = 0

    @classmethod
    def blank(cls, heads: int, n: int, aim: Aim, alpha: float, dtype: type = np.int8) -> "Ledger":
        """A ledger without observations.

        Args:
            heads: Number of heads, or of other variants.
            n: Size of the population.
            aim: Stopping rule.
            alpha: Error probability of each interval.
            dtype: `np.int8` for right and wrong answers, a floating-point type for shares of them.
        """
        table = np.zeros((heads, n), dtype=dtype)
        ends = np.full(heads, -1.0), np.ones(heads)
        return cls(aim, alpha, table, np.zeros(heads, dtype=np.int64), *ends, np.arange(heads))

    def enter(self, hits: np.ndarray) -> None:
        """Add the correctness of the intact model and of the undecided heads on the next examples."""
        heads, start, stop = self.open, self.seen, self.seen + hits.shape[1]
        kind = self.differences.dtype
        self.differences[heads, start:stop] = hits[0].astype(kind) - hits[1:].astype(kind)
        self.used[heads], self.seen, self.right = stop, stop, self.right + float(hits[0].sum())
        population = self.differences.shape[1]
        seen = self.differences[heads, :stop]
        intervals = confidence_sequence(seen, self.aim, population=population, alpha=self.alpha)
        self.low[heads], self.high[heads] = intervals.low, intervals.high
        self.open = heads[~self.aim.reached(intervals.low, intervals.high)]

    def summary(self, n_heads: int, level: float, simultaneous: bool) -> AdaptiveSweep:
        """The result once all heads are decided."""
        work = int(self.used.sum())
        return AdaptiveSweep(
            drops=tuple(self._drop(i, n_heads, level) for i in range(len(self.used))),
            intact=self.right / self.seen,
            population=self.differences.shape[1],
            head_forwards=work,
            saving=self.differences.size / work,
            simultaneous=simultaneous,
        )

    def _drop(self, i: int, n_heads: int, level: float) -> AdaptiveDrop:
        used = int(self.used[i])
        estimate = 100 * float(self.differences[i].sum(dtype=np.float64)) / used
        low, high = 100 * float(self.low[i]), 100 * float(self.high[i])
        method = "betting, any time, without replacement"
        interval = Interval(estimate=estimate, low=low, high=high, level=level, method=method)
        return AdaptiveDrop(layer=i // n_heads, head=i % n_heads, drop=interval, n=used)
