"""What tasks about trigger words have in common: which words trigger, which words fill, drawing by blocks."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from spectrope.core.errors import require
from spectrope.core.random import numpy_stream
from spectrope.tasks.base import Batch, Task, TaskConfig

Rows = tuple[np.ndarray, np.ndarray, np.ndarray]  # token ids (n, t), labels (n,), lengths (n,)
BLOCK = 1024  # examples drawn at a time: their random words and shuffled rows stay in cache


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


class TriggerTask(Task):
    """Base of tasks about trigger words; a subclass says how many there are and draws rows in `draw`."""

    Config = TriggerConfig
    n_triggers: int

    def __init__(self, config: TriggerConfig) -> None:
        super().__init__(config)
        self.config = config

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
        words = np.arange(1, self.vocabulary)
        return words if self.config.fillers == "any" else np.setdiff1d(words, self.trigger_words(seed))

    def draw(self, index: np.ndarray, seed: int) -> Rows:
        """Token ids, labels and lengths of the examples that `index` numbers."""
        raise NotImplementedError

    def sample(self, n: int, seed: int, start: int = 0) -> Batch:
        inputs = np.empty((n, self.max_length), np.int64)
        labels, lengths = np.empty(n, np.int64), np.empty(n, np.int64)
        for low in range(0, n, BLOCK):
            rows = slice(low, min(low + BLOCK, n))
            index = np.arange(start + rows.start, start + rows.stop)
            inputs[rows], labels[rows], lengths[rows] = self.draw(index, seed)
        return Batch(*map(torch.from_numpy, (inputs, labels, lengths)))


def require_sizes(config: TriggerConfig, *names: str) -> None:
    """Require that the named fields are at least 1.

    Raises:
        ConfigError: Naming the first that is not.
    """
    for name in names:
        require(getattr(config, name) >= 1, config, name, "at least 1")


def require_vocabulary(config: TriggerConfig, n_triggers: int, n_fillers: int, hint: str) -> None:
    """Require that the vocabulary holds padding, the triggers, and enough words to fill with.

    Args:
        config: The configuration to check.
        n_triggers: Number of trigger words.
        n_fillers: Number of filler words that must be available.
        hint: The way out.

    Raises:
        ConfigError: If the vocabulary is too small.
    """
    needed = max(n_triggers, n_fillers) if config.fillers == "any" else n_triggers + n_fillers
    require(config.vocabulary > needed, config, "vocabulary", f"at least {needed + 1}", hint)
