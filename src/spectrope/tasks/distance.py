"""Task 1 of arXiv 2505.13027: how far apart are two trigger words?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from spectrope.core import ConfigError, indexed_draws, indexed_integers, require, require_least
from spectrope.tasks.base import PADDING, Batch, Size
from spectrope.tasks.triggers import (
    ExampleArrays,
    TriggerConfig,
    TriggerTask,
    require_possible,
    require_vocabulary,
)


class Distance(TriggerTask, name="distance"):
    r"""Left filler, first trigger, gap, second trigger, right filler; the label is the triggers' distance.

    The left, gap and right segments have :math:`l \sim U\{1..s\}`, :math:`g \sim U\{1..m\}` and
    :math:`r \sim U\{1..s\}` words, drawn without replacement within a segment; the whole is cut at
    `max_length`, which can only shorten the right segment. The label is :math:`g + 1`.

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
            max_side: Most words before the first trigger, and after the second.
            max_gap: Most words between the triggers.
            max_length: Words at which a sequence is cut, and to which it is padded.
        """

        max_side: int = 25
        max_gap: int = 70
        max_length: int = 120

        def __post_init__(self) -> None:
            super().__post_init__()
            require_least(self, 1, "max_side", "max_gap", "max_length")
            longest = self.max_side + self.max_gap + 2
            hint = "Lower max_gap or max_side: the cut must spare the second trigger."
            rule = f"at least {longest}, which is max_side + max_gap + 2"
            require(self.max_length >= longest, self, "max_length", rule, hint)
            hint = "Lower max_gap or max_side: a segment never repeats a word."
            require_vocabulary(self, 2, max(self.max_side, self.max_gap), hint)

    sizes: ClassVar[Mapping[str, Size]] = {
        "mini": Size(config=Config(vocabulary=128, max_side=6, max_gap=18, max_length=32)),
        "small": Size(config=Config(vocabulary=256, max_side=12, max_gap=36, max_length=64)),
        "mid": Size(config=Config(vocabulary=256, max_side=12, max_gap=36, max_length=64)),
    }
    n_triggers = 2

    @property
    def n_classes(self) -> int:
        return self.config.max_gap + 2

    @property
    def max_length(self) -> int:
        return self.config.max_length

    def longer(self, factor: float, n: int, seed: int, start: int = 0) -> Batch:
        """Examples of training's own length, with words before and after them."""
        return extended(self.sample(n, seed, start), factor, self.plain_words(seed), seed, start)

    def draw(self, index: np.ndarray, seed: int) -> ExampleArrays:
        side, most = self.config.max_side, self.config.max_gap
        sizes = np.array([side, most, side])
        left, gap, right = indexed_integers(seed, "distance/lengths", index, 3, sizes).T + 1
        right = np.minimum(right, self.max_length - (left + gap + 2))
        words = self.filler_words(seed).astype(np.min_scalar_type(self.vocabulary))
        before, between, after = (
            indexed_draws(seed, f"distance/{name}", index, size, words)
            for name, size in (("left", side), ("gap", most), ("right", side))
        )
        one = np.ones_like(left)
        first, second = (np.full((len(index), 1), word, words.dtype) for word in self.trigger_words(seed))
        pieces = ((before, left), (first, one), (between, gap), (second, one), (after, right))
        return _joined(pieces, self.max_length), gap + 1, left + gap + right + 2

    def posterior(self, batch: Batch, seed: int) -> Float[Tensor, "n classes"]:
        r"""Probability of each label given each sequence, exactly, in float64.

        Suppose the triggers stand at places l and l + g + 1 of a sequence of t words, so that
        r = t - l - g - 2 words follow. With W filler words, a segment of k different words has probability
        :math:`1/(W)_k = (W-k)!/W!`, so

        .. math:: P(x, l, g) \propto \frac{p(r)}{(W)_l (W)_g (W)_r}, \quad
            p(r) = \begin{cases} 1/s & t < t_{max} \\ (s + 1 - \max(r, 1))/s & t = t_{max}\end{cases}

        where the second case sums over all that the cut may have removed, provided that
        :math:`1 \le l \le s`, :math:`1 \le g \le m`, :math:`r \le s` (and :math:`r \ge 1` before the cut),
        that the words at the two places are the two triggers in order, and that no segment repeats a word.
        All places where the triggers occur are tried; placements with the same g share a label and add up.

        Raises:
            ConfigError: If a sequence cannot come from this task under this seed.
        """
        words, lengths = batch.inputs.cpu().numpy(), batch.lengths.cpu().numpy()
        row, left, gap, right, ways = self._placements(words, lengths, seed)
        log_orders = _log_falling_factorials(len(self.filler_words(seed)), self.max_length)
        weight = np.log(ways) - log_orders[left] - log_orders[gap] - log_orders[right]
        peak = np.full(len(words), -np.inf)
        np.maximum.at(peak, row, weight)
        require_possible(peak > -np.inf, self, seed)
        joint = np.zeros((len(words), self.n_classes))
        np.add.at(joint, (row, gap + 1), np.exp(weight - peak[row]))
        return torch.from_numpy(joint / joint.sum(1, keepdims=True))

    def length_only_accuracy(self) -> float:
        """Best accuracy of a model that only sees how many words a sequence has, and not their order.

        Computed exactly, by enumeration of the segments. A model without positional encoding and without a
        causal mask sees little more: which words occur twice, which only adds 0.001 at scale `mini`.
        """
        side, most = self.config.max_side, self.config.max_gap
        left, gap, right = np.indices((side, most, side)).reshape(3, -1) + 1
        length = np.minimum(left + gap + right + 2, self.max_length)
        counts = np.zeros((self.max_length + 1, most + 1))
        np.add.at(counts, (length, gap), 1)
        return float(counts.max(1).sum() / counts.sum())

    def _placements(self, words: np.ndarray, lengths: np.ndarray, seed: int) -> np.ndarray:
        """All that may have given the sequences: columns of (sequence, l, g, r, s p(r))."""
        is_first, is_second = (words == word for word in self.trigger_words(seed))
        row, left = np.nonzero(is_first)
        pair, second = np.nonzero(is_second[row])
        row, left = row[pair], left[pair]
        gap, right = second - left - 1, lengths[row] - second - 1
        side, is_cut = self.config.max_side, lengths[row] == self.max_length
        ways = np.where(is_cut, side + 1 - np.maximum(right, 1), right >= 1) * (right <= side)
        fits = (left >= 1) & (left <= side) & (gap >= 1) & (gap <= self.config.max_gap) & (ways > 0)
        if self.config.fillers == "clean":
            fits &= (is_first.sum(1) + is_second.sum(1))[row] == 2
        placements = np.stack([row, left, gap, right, ways])[:, fits]
        return placements[:, _repeat_free(words, lengths, *placements[:3])]


def extended(batch: Batch, factor: float, words: np.ndarray, seed: int, start: int = 0) -> Batch:
    """Extend each sequence to `factor` times its length with words before and after it. The number of words
    before it is uniform; words are drawn with replacement.

    Args:
        batch: Examples from number `start` on.
        factor: At least 1.
        words: What is added.
        seed: Of the words.
        start: Number of the first example.

    Raises:
        ConfigError: If the factor is below 1.
    """
    if not factor >= 1:
        raise ConfigError(f"factor must be at least 1; got {factor:g}.")
    index = np.arange(start, start + len(batch))
    lengths = batch.lengths.numpy()
    whole = np.rint(factor * lengths).astype(np.int64)
    before = indexed_integers(seed, "lengths/before", index, 1, (whole - lengths + 1)[:, None])
    place = np.arange(whole.max())
    chosen = words[indexed_integers(seed, "lengths/words", index, len(place), len(words))]
    inside = (place >= before) & (place < before + lengths[:, None])
    kept = np.arange(batch.inputs.shape[1]) < lengths[:, None]
    chosen[inside] = batch.inputs.numpy()[kept]
    chosen[place >= whole[:, None]] = PADDING
    return replace(batch, inputs=torch.from_numpy(chosen), lengths=torch.from_numpy(whole))


def _joined(pieces: Sequence[tuple[np.ndarray, np.ndarray]], width: int) -> np.ndarray:
    """The first few words of each piece, side by side, padded to `width`.

    Args:
        pieces: Words with shape (n, most), and how many of them to take, with shape (n,).
        width: Columns of the result.
    """
    kept = np.hstack([np.arange(words.shape[1]) < count[:, None] for words, count in pieces])
    words = np.hstack([words for words, _ in pieces])
    joined = np.full((len(words), width), PADDING, words.dtype)
    joined[np.arange(width) < kept.sum(1, keepdims=True)] = words[kept]
    return joined


def _log_falling_factorials(n: int, most: int) -> np.ndarray:
    r"""Logarithms of :math:`(n)_k = n (n-1) \cdots (n-k+1)` for k = 0, ..., min(n, most)."""
    return np.concatenate([[0.0], np.cumsum(np.log(np.arange(n, max(n - most, 0), -1)))])


def _repeat_free(
    words: np.ndarray, lengths: np.ndarray, row: np.ndarray, left: np.ndarray, gap: np.ndarray
) -> np.ndarray:
    """Whether none of the three segments that `left` and `gap` mark in sequence `row` repeats a word."""
    start = _starts(words)
    second = left + gap + 1
    return (
        (start[row, left - 1] == 0)
        & (start[row, second - 1] <= left + 1)
        & (start[row, lengths[row] - 1] <= second + 1)
    )


def _starts(words: np.ndarray) -> np.ndarray:
    """For each place the earliest one from which on no word is repeated up to it, with shape (n, t)."""
    order = np.argsort(words, axis=1, kind="stable")
    ranked = np.take_along_axis(words, order, axis=1)
    row, rank = np.nonzero(ranked[:, 1:] == ranked[:, :-1])
    start = np.zeros(words.shape, np.int64)
    start[row, order[row, rank + 1]] = order[row, rank] + 1
    return np.maximum.accumulate(start, axis=1)
