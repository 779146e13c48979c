"""Are the brackets balanced?"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from spectrope.core import indexed_integers, require, require_least
from spectrope.tasks.base import PADDING, Batch, Size, Task, TaskConfig
from spectrope.tasks.cues import FINE, Cue, require_cue, with_cue

TRIES = 4  # Swaps that are tried to make a word invalid, before its first and last bracket are swapped.


class Dyck(Task, name="dyck"):
    r"""A sequence of brackets of k kinds; the label is whether it is balanced and nested at most d deep.

    Half of the sequences are words of the Dyck language :math:`D_{k,d}`, uniform among those with p pairs of
    brackets of one kind, :math:`p \sim U\{\lfloor n/2 \rfloor + 1..n\}`, with the kinds of pairs uniform.
    The others are such words with two brackets swapped so that they are no longer balanced; the frequencies
    of the brackets therefore carry no information about the label.

    With `cue="content"` brackets are in random order, with `cue="position"` each is replaced at random; the
    best accuracy is then 1/2.

    References:
        Theoretical Limitations of Self-Attention in Neural Sequence Models (Hahn, 2020), for Dyck languages;
        Self-Attention Networks Can Process Bounded Hierarchical Languages (Yao et al., 2021), for bounded
        depth. Sec. 6 of arXiv 2505.13027 names them as a task that it leaves open.
    """

    @dataclass(frozen=True, kw_only=True)
    class Config(TaskConfig):
        """Sizes of the words, and what can be told from them.

        Args:
            kinds: Kinds of brackets.
            max_pairs: Pairs of brackets of the longest word.
            max_depth: Depth up to which brackets are nested.
            cue: What can be told from a sequence: content and position, or one of them as a control.
        """

        kinds: int = 2
        max_pairs: int = 40
        max_depth: int = 6
        cue: Cue = "both"

        def __post_init__(self) -> None:
            require_least(self, 1, "kinds", "max_depth")
            require_least(self, 2, "max_pairs")
            require(self.max_pairs <= 500, self, "max_pairs", "at most 500, up to which words can be counted")
            require_cue(self, self.cue)

    sizes: ClassVar[Mapping[str, Size]] = {
        "mini": Size(config=Config(max_pairs=16, max_depth=4), epochs=8, pooling="last"),
        "small": Size(config=Config(max_pairs=32), pooling="last"),
        "mid": Size(config=Config(max_pairs=32), pooling="last"),
        "paper": Size(config=Config(max_pairs=60), pooling="last"),
    }

    @property
    def n_classes(self) -> int:
        return 2

    @property
    def vocabulary(self) -> int:
        return 1 + 2 * self.config.kinds

    @property
    def max_length(self) -> int:
        return 2 * self.config.max_pairs

    def sample(self, n: int, seed: int, start: int = 0) -> Batch:
        config, index = self.config, np.arange(start, start + n)
        fewest = config.max_pairs // 2 + 1
        pairs = fewest + indexed_integers(seed, "dyck/pairs", index, 1, config.max_pairs - fewest + 1)[:, 0]
        labels = indexed_integers(seed, "dyck/label", index, 1, 2)[:, 0]
        words = self._words(2 * pairs, seed, index)
        words = np.where(labels[:, None] == 1, words, self._spoilt(words, 2 * pairs, seed, index))
        shown = with_cue(words, 2 * pairs, config.cue, seed, "dyck", index, 2 * config.kinds)
        inputs = np.where(np.arange(self.max_length) < 2 * pairs[:, None], shown + 1, PADDING)
        return Batch(*(torch.from_numpy(values) for values in (inputs, labels, 2 * pairs)))

    def solve(self, batch: Batch, seed: int) -> Int[Tensor, " n"]:
        """1 if brackets are balanced within the depth; always 1 in the controls, in which the label cannot be
        inferred."""
        if self.config.cue != "both":
            return torch.ones(len(batch)).long()
        words, lengths = batch.inputs.cpu().numpy() - 1, batch.lengths.cpu().numpy()
        return torch.from_numpy(is_balanced(words, lengths, self.config.max_depth)).long()

    def bayes_accuracy(self, n: int = 8000, seed: int = 0) -> float:
        """1, or 1/2 in the controls."""
        return 1.0 if self.config.cue == "both" else 0.5

    def _words(self, lengths: Int[np.ndarray, " n"], seed: int, index: np.ndarray) -> Int[np.ndarray, "n t"]:
        """Balanced words: 2 j opens a pair of kind j, 2 j + 1 closes it."""
        ways, rows = _ways(self.max_length, self.config.max_depth), np.arange(len(index))
        steps = indexed_integers(seed, "dyck/steps", index, self.max_length, FINE) / FINE
        kinds = indexed_integers(seed, "dyck/kinds", index, self.max_length, self.config.kinds)
        words, depth = np.zeros((len(index), self.max_length), np.int64), np.zeros(len(index), np.int64)
        stack = np.zeros((len(index), self.config.max_depth + 1), np.int64)
        for place in range(self.max_length):
            left = lengths - place
            is_within = left > 0
            chance = ways[left.clip(1) - 1, depth + 1] / ways[left.clip(0), depth].clip(1)
            opens = is_within & (steps[:, place] < chance)
            kind = np.where(opens, kinds[:, place], stack[rows, depth])
            words[:, place] = np.where(is_within, 2 * kind + ~opens, 0)
            depth = depth + np.where(is_within, np.where(opens, 1, -1), 0)
            stack[rows[opens], depth[opens]] = kind[opens]
        return words

    def _spoilt(
        self, words: Int[np.ndarray, "n t"], lengths: Int[np.ndarray, " n"], seed: int, index: np.ndarray
    ) -> Int[np.ndarray, "n t"]:
        """The words with two brackets swapped so that they are unbalanced, or nested too deep."""
        places = indexed_integers(seed, "dyck/swaps", index, 2 * TRIES, lengths[:, None])
        ends = np.stack([np.zeros_like(lengths), lengths - 1], 1)
        spoilt, todo = words.copy(), np.ones(len(words), bool)
        for first, second in [*places.reshape(-1, TRIES, 2).transpose(1, 2, 0), ends.T]:
            tried = _swapped(words, first, second)
            works = todo & ~is_balanced(tried, lengths, self.config.max_depth)
            spoilt[works] = tried[works]
            todo &= ~works
        return spoilt


def is_balanced(
    words: Int[np.ndarray, "n t"], lengths: Int[np.ndarray, " n"], max_depth: int
) -> Bool[np.ndarray, " n"]:
    """Whether the first brackets of each row, 2 j opening and 2 j + 1 closing kind j, are a word."""
    rows, depth = np.arange(len(words)), np.zeros(len(words), np.int64)
    fits, stack = np.ones(len(words), bool), np.full((len(words), max_depth + 2), -1)
    for place in range(words.shape[1]):
        kind, closes = np.divmod(words[:, place], 2)
        goes_on = fits & (place < lengths)
        wrong = np.where(closes == 1, (depth == 0) | (stack[rows, depth] != kind), depth == max_depth)
        fits &= ~(goes_on & wrong)
        goes_on &= fits
        opens = goes_on & (closes == 0)
        depth = depth + np.where(goes_on, np.where(closes == 1, -1, 1), 0)
        stack[rows[opens], depth[opens]] = kind[opens]
    return fits & (depth == 0)


def _swapped(words: Int[np.ndarray, "n t"], first: np.ndarray, second: np.ndarray) -> Int[np.ndarray, "n t"]:
    rows, swapped = np.arange(len(words)), words.copy()
    swapped[rows, first], swapped[rows, second] = words[rows, second], words[rows, first]
    return swapped


def _ways(steps: int, max_depth: int) -> Float[np.ndarray, "steps depths"]:
    """Number of ways back to depth 0 in so many steps, by depth, without leaving 0 to `max_depth`."""
    ways = np.zeros((steps + 1, max_depth + 2))
    ways[0, 0] = 1.0
    for step in range(1, steps + 1):
        ways[step, :-1] = ways[step - 1, 1:]
        ways[step, 1:-1] += ways[step - 1, :-2]
        ways[step, -1] = 0.0
    return ways
