"""Common base of tasks about trigger words: word sets, sampling and solving in blocks."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from spectrope.core import ConfigError, numpy_stream, require
from spectrope.tasks.base import Batch, Task, TaskConfig

ExampleArrays = tuple[np.ndarray, np.ndarray, np.ndarray]  # token ids (n, t), labels (n,), lengths (n,)
BLOCK = 512  # examples handled at a time: their random words and shuffled rows stay in cache


@dataclass(frozen=True, kw_only=True)
class TriggerConfig(TaskConfig):
    """Fields of every task about trigger words.

    Args:
        vocabulary: Number of token ids; id 0 is padding, so there is one word fewer.
        triggers: Whether the trigger words are the same for every seed ("fixed") or are drawn from the
            data set's seed ("fresh"). Training and held-out examples of one data set always share them.
        fillers: Whether the other words are never triggers ("clean") or are drawn from all words, triggers
            included ("any"), which makes labels ambiguous.
    """

    vocabulary: int = 574
    triggers: Literal["fixed", "fresh"] = "fixed"
    fillers: Literal["clean", "any"] = "clean"

    def __post_init__(self) -> None:
        require(self.triggers in ("fixed", "fresh"), self, "triggers", "'fixed' or 'fresh'")
        require(self.fillers in ("clean", "any"), self, "fillers", "'clean' or 'any'")


class TriggerTask(Task):
    """Base of tasks about trigger words.

    A subclass defines the number of trigger words, draws examples in `draw`, and computes the exact
    `posterior` of the label, from which the oracle and the best possible accuracy follow.
    """

    Config = TriggerConfig
    n_triggers: int

    @property
    def vocabulary(self) -> int:
        return self.config.vocabulary

    def trigger_words(self, seed: int) -> np.ndarray:
        """Ids of the trigger words in the data set that `seed` names, with shape (n_triggers,)."""
        if self.config.triggers == "fixed":
            return np.arange(1, self.n_triggers + 1)
        stream = numpy_stream(seed, self.config.kind, "triggers")
        return stream.choice(np.arange(1, self.vocabulary), self.n_triggers, replace=False)

    def filler_words(self, seed: int) -> np.ndarray:
        """Ids of the words that all other tokens are drawn from, in ascending order."""
        return np.arange(1, self.vocabulary) if self.config.fillers == "any" else self.plain_words(seed)

    def plain_words(self, seed: int) -> np.ndarray:
        """Ids of the words that are no triggers, in ascending order."""
        return np.setdiff1d(np.arange(1, self.vocabulary), self.trigger_words(seed))

    def draw(self, index: np.ndarray, seed: int) -> ExampleArrays:
        """Token ids, labels and lengths of the examples that `index` numbers."""
        raise NotImplementedError

    def posterior(self, batch: Batch, seed: int) -> Float[Tensor, "n classes"]:
        """Probability of each label given each sequence, exactly, in float64.

        Raises:
            ConfigError: If a sequence cannot come from this task under this seed.
        """
        raise NotImplementedError

    def sample(self, n: int, seed: int, start: int = 0) -> Batch:
        inputs = np.empty((n, self.max_length), np.int64)
        labels, lengths = np.empty(n, np.int64), np.empty(n, np.int64)
        for rows in blocks(n):
            index = np.arange(start + rows.start, start + rows.stop)
            inputs[rows], labels[rows], lengths[rows] = self.draw(index, seed)
        return Batch(*map(torch.from_numpy, (inputs, labels, lengths)))

    def solve(self, batch: Batch, seed: int) -> Int[Tensor, " n"]:
        """The most probable label of each sequence: the true one if fillers are clean, else the Bayes rule.

        Raises:
            ConfigError: If a sequence cannot come from this task under this seed.
        """
        solved = torch.empty(len(batch), dtype=torch.int64)
        for rows in blocks(len(batch)):
            solved[rows] = self.posterior(batch[rows], seed).argmax(1)
        return solved

    def bayes_accuracy(self, n: int = 8000, seed: int = 0) -> float:
        """Mean over n sampled sequences of the largest posterior probability, as a fraction."""
        batch = self.sample(n, seed)
        highest = [self.posterior(batch[rows], seed).amax(1) for rows in blocks(n)]
        return torch.cat(highest).mean().item()


def blocks(n: int) -> Iterator[slice]:
    """Consecutive slices that cover n examples."""
    return (slice(start, min(start + BLOCK, n)) for start in range(0, n, BLOCK))


def require_possible(possible: np.ndarray, task: TriggerTask, seed: int) -> None:
    """Require that every sequence can come from the task.

    Raises:
        ConfigError: Naming the first that cannot.
    """
    if not possible.all():
        raise ConfigError(
            f"{type(task).__name__}: sequence {possible.argmin()} of the batch cannot come from this task "
            f"under seed {seed}; solve with the configuration and the seed that sampled it."
        )


def require_vocabulary(config: TriggerConfig, n_triggers: int, n_fillers: int, hint: str) -> None:
    """Require that the vocabulary holds padding, the triggers, and enough words to fill with.

    Args:
        config: The configuration to check.
        n_triggers: Number of trigger words.
        n_fillers: Number of filler words that must be available.
        hint: How to fix it.

    Raises:
        ConfigError: If the vocabulary is too small.
    """
    needed = max(n_triggers, n_fillers) if config.fillers == "any" else n_triggers + n_fillers
    require(config.vocabulary > needed, config, "vocabulary", f"at least {needed + 1}", hint)
