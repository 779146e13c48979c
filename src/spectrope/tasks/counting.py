"""Task 2 of arXiv 2505.13027: how many trigger words are there?"""

from dataclasses import dataclass

import numpy as np

from spectrope.core.errors import require
from spectrope.core.random import indexed_integers, indexed_subsets
from spectrope.tasks.triggers import Rows, TriggerConfig, TriggerTask, require_sizes, require_vocabulary


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
            require_sizes(self, "length", "n_triggers", "max_count")
            hint = "Lower max_count or raise length."
            require(self.max_count <= self.length, self, "max_count", f"at most length, {self.length}", hint)
            require_vocabulary(self, self.n_triggers, 1, "Lower n_triggers or raise vocabulary.")

    def __init__(self, config: "Counting.Config") -> None:
        super().__init__(config)
        self.config, self.n_triggers = config, config.n_triggers

    @property
    def n_classes(self) -> int:
        return self.config.max_count + 1

    @property
    def max_length(self) -> int:
        return self.config.length

    def draw(self, index: np.ndarray, seed: int) -> Rows:
        places = self.config.length
        count = indexed_integers(seed, "counting/count", index, 1, self.n_classes)[:, 0]
        is_trigger = indexed_subsets(seed, "counting/places", index, count, places)
        triggers, fillers = (
            words[indexed_integers(seed, f"counting/{name}", index, places, len(words))]
            for name, words in (("triggers", self.trigger_words(seed)), ("fillers", self.filler_words(seed)))
        )
        return np.where(is_trigger, triggers, fillers), count, np.full(len(index), places)
