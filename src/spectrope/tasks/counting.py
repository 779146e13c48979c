"""Task 2 of arXiv 2505.13027: how many trigger words are there?"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import scipy.stats
import torch
from jaxtyping import Float
from torch import Tensor

from spectrope.core import indexed_integers, indexed_subsets, require, require_least
from spectrope.tasks.base import Batch, Size
from spectrope.tasks.triggers import (
    ExampleArrays,
    TriggerConfig,
    TriggerTask,
    require_possible,
    require_vocabulary,
)


class Counting(TriggerTask, name="counting"):
    r"""A sequence of fixed length, some of whose words are triggers; the label is how many.

    The count is :math:`c \sim U\{0..k\}`; the c places are uniform without replacement; each takes a trigger
    word, and every other place a filler word, uniformly with replacement. The label is :math:`c`.

    References:
        arXiv 2505.13027, Sec. 4.1.
    """

    @dataclass(frozen=True, kw_only=True)
    class Config(TriggerConfig):
        """Sizes of the sequences; the defaults are the paper's.

        Args:
            vocabulary: Number of token ids; id 0 is padding, so there is one word fewer.
            triggers: Whether the trigger words are the same for every seed, or are drawn from the seed.
            fillers: Whether the other words are never triggers, or are drawn from all words.
            length: Words in every sequence.
            n_triggers: Number of different trigger words.
            max_count: Most places that are given to triggers.
        """

        length: int = 120
        n_triggers: int = 20
        max_count: int = 100

        def __post_init__(self) -> None:
            super().__post_init__()
            require_least(self, 1, "length", "n_triggers", "max_count")
            hint = "Lower max_count or raise length."
            require(self.max_count <= self.length, self, "max_count", f"at most length, {self.length}", hint)
            require_vocabulary(self, self.n_triggers, 1, "Lower n_triggers or raise vocabulary.")

    sizes: ClassVar[Mapping[str, Size]] = {
        "mini": Size(
            config=Config(vocabulary=128, length=32, n_triggers=10, max_count=26), n_examples=12_000
        ),
        "small": Size(
            config=Config(vocabulary=256, length=64, n_triggers=15, max_count=52), n_examples=30_000
        ),
        "mid": Size(
            config=Config(vocabulary=256, length=64, n_triggers=15, max_count=52),
            n_examples=12_000,
            epochs=6,
        ),
        "paper": Size(n_examples=50_000, epochs=150),
    }

    def setup(self, config: "Counting.Config") -> None:
        self.n_triggers = config.n_triggers

    @property
    def n_classes(self) -> int:
        return self.config.max_count + 1

    @property
    def max_length(self) -> int:
        return self.config.length

    def longer(self, factor: float, n: int, seed: int, start: int = 0) -> Batch:
        longer = replace(self.config, length=round(factor * self.config.length))
        return longer.build().sample(n, seed, start)

    def draw(self, index: np.ndarray, seed: int) -> ExampleArrays:
        places, triggers, fillers = self.config.length, self.trigger_words(seed), self.filler_words(seed)
        count = indexed_integers(seed, "counting/count", index, 1, self.n_classes)[:, 0]
        is_trigger = indexed_subsets(seed, "counting/places", index, count, places)
        choices = np.where(is_trigger, len(triggers), len(fillers))
        chosen = indexed_integers(seed, "counting/words", index, places, choices)
        chosen += np.where(is_trigger, 0, len(triggers))
        return np.concatenate([triggers, fillers])[chosen], count, np.full(len(index), places)

    def posterior(self, batch: Batch, seed: int) -> Float[Tensor, "n classes"]:
        r"""Probability of each label given each sequence, exactly, in float64.

        Let x be a sequence of t words of which m are among the K triggers, and let there be W filler words.
        Given the count c, all :math:`\binom tc` choices of places are equally likely; the
        :math:`\binom mc` that lie on triggers each give x with probability :math:`K^{-c}W^{-(t-c)}`, the
        others never. So

        .. math:: P(x \mid c) = \binom mc \binom tc^{-1} K^{-c} W^{-(t-c)}

        depends on x through m alone: all that x tells about c, m tells, and the posterior is that of c
        given m under `likelihood` and a uniform prior.

        Raises:
            ConfigError: If a sequence cannot come from this task under this seed.
        """
        seen = np.isin(batch.inputs.cpu().numpy(), self.trigger_words(seed)).sum(1)
        likelihood = self.likelihood(seed)[:, seen].T
        total = likelihood.sum(1, keepdims=True)
        require_possible(total[:, 0] > 0, self, seed)
        return torch.from_numpy(likelihood / total)

    def likelihood(self, seed: int) -> np.ndarray:
        r"""Probability :math:`P(m \mid c)` of seeing m trigger words, with shape (k + 1, t + 1).

        Each of the t - c fillers is a trigger word with probability q, the share of triggers among the
        filler words, so :math:`m - c \sim \mathrm{Bin}(t - c, q)`. Clean fillers have q = 0, and m = c.
        """
        count = np.arange(self.n_classes)[:, None]
        share = np.isin(self.filler_words(seed), self.trigger_words(seed)).mean()
        extra = np.arange(self.max_length + 1) - count
        return scipy.stats.binom.pmf(extra, self.max_length - count, share)

    def bayes_accuracy(self, n: int = 8000, seed: int = 0) -> float:
        r"""Best accuracy :math:`\sum_m \max_c P(m \mid c) / (k + 1)`, as a fraction.

        Exact: the sum runs over all possible observations, so n and the seed have no effect.
        """
        return float(self.likelihood(seed).max(axis=0).sum() / self.n_classes)
