"""A picture, and words that copy it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from spectrope.core import indexed_integers, require_least
from spectrope.encodings import mrope_positions
from spectrope.tasks.base import PADDING, Batch, Size, Task, TaskConfig


class PictureCopy(Task, name="picture"):
    r"""A picture, row by row, and the first k of its words in another order; the label is the next.

    Cells have words uniform with replacement, and :math:`k \sim U\{0..rc - 1\}` for r rows and c columns. The
    copy runs down the columns, so the successor of a word is the cell below it, c tokens later, or the top of
    the next column; with `order` "rows", the copy has the order of the picture. A special token after the
    picture marks the start of the copy.

    The task supplies positions (order, time, row, column) as M-RoPE numbers a picture before a text;
    encodings of one axis read the order.
    """

    @dataclass(frozen=True, kw_only=True)
    class Config(TaskConfig):
        """Sizes of the picture.

        Args:
            words: Different words in pictures.
            rows: Rows of the picture.
            columns: Columns of the picture.
            order: Order of the copy.
        """

        words: int = 64
        rows: int = 7
        columns: int = 8
        order: Literal["columns", "rows"] = "columns"

        def __post_init__(self) -> None:
            require_least(self, 2, "words", "rows", "columns")

    sizes: ClassVar[Mapping[str, Size]] = {
        "mini": Size(config=Config(words=16, rows=4, columns=4), pooling="last"),
        "small": Size(config=Config(words=32, rows=5, columns=6), pooling="last"),
        "mid": Size(config=Config(words=32, rows=5, columns=6), pooling="last"),
        "paper": Size(pooling="last"),
    }

    @property
    def cells(self) -> int:
        """Cells of the picture."""
        return self.config.rows * self.config.columns

    @property
    def n_classes(self) -> int:
        return self.config.words

    @property
    def vocabulary(self) -> int:
        return self.config.words + 2  # Padding, words, and the one that says that the copy begins.

    @property
    def max_length(self) -> int:
        return 2 * self.cells

    @property
    def copied(self) -> np.ndarray:
        """Cells in the order of the copy."""
        cell = np.arange(self.cells).reshape(self.config.rows, self.config.columns)
        return (cell.T if self.config.order == "columns" else cell).ravel()

    def longer(self, factor: float, n: int, seed: int, start: int = 0) -> Batch:
        """Pictures with more rows."""
        return PictureCopy(replace(self.config, rows=round(factor * self.config.rows))).sample(n, seed, start)

    def sample(self, n: int, seed: int, start: int = 0) -> Batch:
        index, cells = np.arange(start, start + n), self.cells
        picture = indexed_integers(seed, "picture/words", index, cells, self.config.words)
        shown = indexed_integers(seed, "picture/shown", index, 1, cells)[:, 0]
        copy = picture[:, self.copied]
        begin = np.full((n, 1), self.vocabulary - 1)
        inputs = np.concatenate([picture + 1, begin, copy[:, :-1] + 1], axis=1)
        lengths = cells + 1 + shown
        inputs[np.arange(self.max_length) >= lengths[:, None]] = PADDING
        labels = copy[np.arange(n), shown]
        positions, _ = mrope_positions(0, 1, self.config.rows, self.config.columns, cells)
        shown_tensors = (torch.from_numpy(x.astype(np.int64)) for x in (inputs, labels, lengths))
        return Batch(*shown_tensors, positions=positions.expand(n, -1, -1))

    def solve(self, batch: Batch, seed: int) -> Int[Tensor, " n"]:
        """The next word of the copy of the picture that stands before it."""
        picture = (batch.inputs != PADDING) & (batch.inputs != self.vocabulary - 1)
        words = batch.inputs[:, : self.cells][:, torch.from_numpy(self.copied.copy())]
        shown = picture.sum(1) - self.cells
        return words[torch.arange(len(batch)), shown] - 1

    def bayes_accuracy(self, n: int = 8000, seed: int = 0) -> float:
        """1: the picture decides the next word."""
        return 1.0
