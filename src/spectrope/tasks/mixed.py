"""A question about distance or about content, with a knob for how often it is which."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from spectrope.core import indexed_integers, require, require_least
from spectrope.tasks.base import PADDING, Batch, Size, Task, TaskConfig
from spectrope.tasks.cues import FINE, Cue, require_cue, with_cue

ASKS_CONTENT, ASKS_DISTANCE, FIRST, SECOND = range(4)  # Numbers of the words that come before the others.
NAMED = 4


class Mixed(Task, name="mixed"):
    r"""Asks for a distance with probability `position_share`, otherwise which word of a set occurs.

    A sequence holds two trigger words at distance :math:`d \sim U\{1..K\}`, one of K class words
    :math:`c \sim U\{0..K-1\}` at a random other place, filler words, and a question as its last word. The
    label is :math:`d - 1` if the question is about the distance, and c if it is about the class word.
    Distance and class word are in every sequence, independent of each other and of its length, so that
    sequences of different shares differ in their last words alone. At share 0 the task needs no position,
    like Task 2 of arXiv 2505.13027; at share 1 it couples content and position, like Task 1.

    With `cue="content"` all words are in random order, and the best accuracy is
    :math:`(1 - s) + s / K` for share s. With `cue="position"` each word is replaced at random, and it is
    :math:`1 / K`.
    """

    @dataclass(frozen=True, kw_only=True)
    class Config(TaskConfig):
        """Share of questions about the distance, sizes of the sequences, and what can be told from them.

        Args:
            position_share: Probability that the question is about the distance.
            n_answers: K, the number of distances and of class words.
            n_fillers: Number of different filler words, which are drawn with replacement.
            max_words: Words of the longest sequence before its question.
            cue: What can be told from a sequence: content and position, or one of them as a control.
        """

        position_share: float = 0.5
        n_answers: int = 32
        n_fillers: int = 128
        max_words: int = 60
        cue: Cue = "both"

        def __post_init__(self) -> None:
            require(0 <= self.position_share <= 1, self, "position_share", "between 0 and 1")
            require_least(self, 2, "n_answers")
            require_least(self, 1, "n_fillers")
            rule = f"at least {self.n_answers + 2}, which is n_answers + 2"
            require(self.max_words >= self.n_answers + 2, self, "max_words", rule)
            require_cue(self, self.cue)

    sizes: ClassVar[Mapping[str, Size]] = {
        "mini": Size(config=Config(n_answers=16, n_fillers=64, max_words=28), pooling="last"),
        "small": Size(config=Config(), pooling="last"),
        "mid": Size(config=Config(), pooling="last"),
        "paper": Size(config=Config(n_answers=70, n_fillers=400, max_words=119), pooling="last"),
    }

    @property
    def n_classes(self) -> int:
        return self.config.n_answers

    @property
    def vocabulary(self) -> int:
        return 1 + self._n_words

    @property
    def max_length(self) -> int:
        return self.config.max_words + 1

    @property
    def _n_words(self) -> int:
        return NAMED + self.config.n_answers + self.config.n_fillers

    def sample(self, n: int, seed: int, start: int = 0) -> Batch:
        config, index, rows = self.config, np.arange(start, start + n), np.arange(n)
        least, most = config.n_answers + 2, config.max_words

        def draw(name: str, size: int | np.ndarray, count: int = 1) -> np.ndarray:
            return indexed_integers(seed, f"mixed/{name}", index, count, size)

        length = least + draw("length", most - least + 1)[:, 0]
        asks = draw("question", FINE)[:, 0] < config.position_share * FINE
        answer = draw("distance", config.n_answers)[:, 0]
        named = draw("class", config.n_answers)[:, 0]
        first = draw("place", (length - config.n_answers)[:, None])[:, 0]
        second = first + answer + 1
        other = draw("place of class", (length - 2)[:, None])[:, 0]
        other += other >= first
        other += other >= second
        words = NAMED + config.n_answers + draw("fillers", config.n_fillers, most + 1)
        words[rows, first], words[rows, second] = FIRST, SECOND
        words[rows, other] = NAMED + named
        words[rows, length] = np.where(asks, ASKS_DISTANCE, ASKS_CONTENT)
        shown = with_cue(words, length + 1, config.cue, seed, "mixed", index, self._n_words)
        inputs = np.where(np.arange(most + 1) <= length[:, None], shown + 1, PADDING)
        labels = np.where(asks, answer, named)
        return Batch(*(torch.from_numpy(values) for values in (inputs, labels, length + 1)))

    def solve(self, batch: Batch, seed: int) -> Int[Tensor, " n"]:
        """The distance or the class word that is asked for; label 0 where it cannot be told."""
        words = batch.inputs.cpu() - 1
        if self.config.cue == "position":
            return torch.zeros(len(batch)).long()
        is_class = (words >= NAMED) & (words < NAMED + self.config.n_answers)
        named = torch.where(is_class, words - NAMED, 0).sum(1)
        distance = _place(words, SECOND) - _place(words, FIRST) - 1
        if self.config.cue == "content":
            distance = torch.zeros_like(distance)
        return torch.where((words == ASKS_DISTANCE).any(1), distance, named)

    def bayes_accuracy(self, n: int = 8000, seed: int = 0) -> float:
        """Best accuracy: 1; (1 - share) + share/K without order; 1/K without content."""
        share, chance = self.config.position_share, 1 / self.config.n_answers
        return {"both": 1.0, "content": 1 - share + share * chance, "position": chance}[self.config.cue]


def _place(words: Int[Tensor, "n t"], word: int) -> Int[Tensor, " n"]:
    """Where a word that occurs once stands."""
    return (words == word).long().argmax(1)
