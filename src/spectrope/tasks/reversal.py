"""Which word comes k-th in the reversed sequence?"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from spectrope.core import indexed_integers, require_least
from spectrope.tasks.base import PADDING, Batch, Size, Task, TaskConfig
from spectrope.tasks.cues import Cue, require_cue, with_cue


class Reversal(Task, name="reversal"):
    r"""A sequence of words and a query k; the label is the k-th word of the sequence reversed.

    The sequence is :math:`w_0 \dots w_{m-1}\,?_k` with :math:`m \sim U\{2..n\}`, words uniform with
    replacement and :math:`k \sim U\{0..m-1\}`; the label is :math:`w_{m-1-k}`. Reversing a whole sequence
    means answering for all k; the decoder answers for one.

    With `cue="content"` the words are in random order, and the best answer is the most frequent word. With
    `cue="position"` each word is replaced at random, and no answer is better than another.

    Short sequences are few, so that some held-out examples also occur in training: 3 % of them at `mini`.

    References:
        Sec. 6 of arXiv 2505.13027 names sequence reversal as a task that it leaves open.
    """

    @dataclass(frozen=True, kw_only=True)
    class Config(TaskConfig):
        """Sizes of the sequences, and what can be told from them.

        Args:
            n_words: Number of different words.
            max_words: Words of the longest sequence.
            cue: What can be told from a sequence: content and position, or one of them as a control.
        """

        n_words: int = 32
        max_words: int = 60
        cue: Cue = "both"

        def __post_init__(self) -> None:
            require_least(self, 2, "n_words", "max_words")
            require_cue(self, self.cue)

    sizes: ClassVar[Mapping[str, Size]] = {
        "mini": Size(config=Config(n_words=16, max_words=24), epochs=8, pooling="last"),
        "small": Size(config=Config(), pooling="last"),
        "mid": Size(config=Config(), pooling="last"),
        "paper": Size(config=Config(max_words=119), pooling="last"),
    }

    @property
    def n_classes(self) -> int:
        return self.config.n_words

    @property
    def vocabulary(self) -> int:
        return 1 + self.config.n_words + self.config.max_words

    @property
    def max_length(self) -> int:
        return self.config.max_words + 1

    def sample(self, n: int, seed: int, start: int = 0) -> Batch:
        config, index, rows = self.config, np.arange(start, start + n), np.arange(n)
        words = indexed_integers(seed, "reversal/words", index, config.max_words, config.n_words)
        length = 2 + indexed_integers(seed, "reversal/length", index, 1, config.max_words - 1)[:, 0]
        query = indexed_integers(seed, "reversal/query", index, 1, length[:, None])[:, 0]
        labels = words[rows, length - 1 - query]
        shown = with_cue(words, length, config.cue, seed, "reversal", index, config.n_words)
        inputs = np.full((n, self.max_length), PADDING)
        inputs[:, :-1] = np.where(np.arange(config.max_words) < length[:, None], shown + 1, PADDING)
        inputs[rows, length] = 1 + config.n_words + query
        return Batch(*(torch.from_numpy(values) for values in (inputs, labels, length + 1)))

    def solve(self, batch: Batch, seed: int) -> Int[Tensor, " n"]:
        """The queried word; in the controls, the most frequent word ("content") or the first word
        ("position")."""
        inputs, rows = batch.inputs.cpu(), torch.arange(len(batch))
        if self.config.cue == "position":
            return torch.zeros(len(batch)).long()
        if self.config.cue == "content":
            return self._counts(inputs).argmax(1)
        length = batch.lengths.cpu() - 1
        query = inputs[rows, length] - 1 - self.config.n_words
        return inputs[rows, length - 1 - query] - 1

    def bayes_accuracy(self, n: int = 8000, seed: int = 0) -> float:
        """Best accuracy: 1; the mean share of the most frequent word without order; 1/words without content.

        That share is estimated from n examples.
        """
        if self.config.cue == "both":
            return 1.0
        if self.config.cue == "position":
            return 1 / self.config.n_words
        batch = self.sample(n, seed)
        return (self._counts(batch.inputs).amax(1) / (batch.lengths - 1)).double().mean().item()

    def _counts(self, inputs: Int[Tensor, "n t"]) -> Int[Tensor, "n words"]:
        """How often each word is in each sequence."""
        return torch.stack([(inputs == word + 1).sum(1) for word in range(self.config.n_words)], 1)
