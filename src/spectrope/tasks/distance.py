"""Task 1 of arXiv 2505.13027: how far apart are two trigger words?"""

from dataclasses import dataclass

import numpy as np

from spectrope.core.errors import require
from spectrope.core.random import indexed_draws, indexed_integers
from spectrope.tasks.base import PADDING
from spectrope.tasks.triggers import Rows, TriggerConfig, TriggerTask, require_sizes, require_vocabulary


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
            require_sizes(self, "max_side", "max_gap", "max_length")
            longest = self.max_side + self.max_gap + 2
            hint = "Lower max_gap or max_side: the cut must spare the second trigger."
            rule = f"at least {longest}, which is max_side + max_gap + 2"
            require(self.max_length >= longest, self, "max_length", rule, hint)
            hint = "Lower max_gap or max_side: a segment never repeats a word."
            require_vocabulary(self, 2, max(self.max_side, self.max_gap), hint)

    n_triggers = 2

    def __init__(self, config: "Distance.Config") -> None:
        super().__init__(config)
        self.config = config

    @property
    def n_classes(self) -> int:
        return self.config.max_gap + 2

    @property
    def max_length(self) -> int:
        return self.config.max_length

    def draw(self, index: np.ndarray, seed: int) -> Rows:
        left, gap, right = self._lengths(index, seed)
        length = np.minimum(left + gap + right + 2, self.max_length)
        side, most = self.config.max_side, self.config.max_gap
        place = np.arange(self.max_length)
        source = place + (place >= left[:, None]) * (side - left)[:, None]
        source += (place > (left + gap)[:, None]) * (most - gap)[:, None]
        source[place >= length[:, None]] = 2 * side + most + 2
        return np.take_along_axis(self._segments(index, seed), source, axis=1), gap + 1, length

    def _lengths(self, index: np.ndarray, seed: int) -> np.ndarray:
        """Words left of, between and right of the triggers before the cut, with shape (3, n)."""
        most = np.array([self.config.max_side, self.config.max_gap, self.config.max_side])
        return indexed_integers(seed, "distance/lengths", index, 3, most).T + 1

    def _segments(self, index: np.ndarray, seed: int) -> np.ndarray:
        """Full left segment, trigger, full gap, trigger, full right segment, padding, side by side."""
        words = self.filler_words(seed).astype(np.min_scalar_type(self.vocabulary))
        side, gap, n = self.config.max_side, self.config.max_gap, len(index)
        left, between, right = (
            indexed_draws(seed, f"distance/{name}", index, size, words)
            for name, size in (("left", side), ("gap", gap), ("right", side))
        )
        first, second, end = (np.full((n, 1), id, words.dtype) for id in (*self.trigger_words(seed), PADDING))
        return np.hstack([left, first, between, second, right, end])
