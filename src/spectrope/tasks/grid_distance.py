"""How far apart two marks are on a grid."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from jaxtyping import Int
from torch import Tensor

from spectrope.core import indexed_integers, require_least
from spectrope.tasks.base import Batch, Size, Task, TaskConfig
from spectrope.tasks.grids import grid_batch, place_of

FIRST, SECOND, FILLER = 1, 2, 3  # Token ids of the marks, and the first of the fillers.


class GridDistance(Task, name="grid_distance"):
    r"""A grid, row by row, with two marks; the label is how many rows and columns they are apart.

    Of marks in rows :math:`r_1, r_2` and columns :math:`c_1, c_2`, it is
    :math:`|r_1 - r_2| + |c_1 - c_2|`. The two cells are uniform among all pairs of different ones; every
    other cell has a filler word, uniformly with replacement. The grid has the same size in every example, so
    indices in the sequence determine the label just as rows and columns do; they differ in how hard it is to
    learn. The task supplies positions (order, 0, row, column); encodings of one axis read the order.
    """

    @dataclass(frozen=True, kw_only=True)
    class Config(TaskConfig):
        """Sizes of the grid.

        Args:
            vocabulary: Number of token ids; padding and the marks take three.
            rows: Rows within which both marks lie.
            columns: Columns of the grid.
            spare: Further rows, above or below these.
        """

        vocabulary: int = 128
        rows: int = 10
        columns: int = 12
        spare: int = 0

        def __post_init__(self) -> None:
            require_least(self, 2, "rows", "columns")
            require_least(self, 4, "vocabulary")
            require_least(self, 0, "spare")

    sizes: ClassVar[Mapping[str, Size]] = {
        "mini": Size(config=Config(vocabulary=32, rows=5, columns=6)),
        "small": Size(config=Config(vocabulary=64, rows=8, columns=8)),
        "mid": Size(config=Config(vocabulary=64, rows=8, columns=8)),
    }

    @property
    def n_classes(self) -> int:
        return self.config.rows + self.config.columns - 1

    @property
    def vocabulary(self) -> int:
        return self.config.vocabulary

    @property
    def max_length(self) -> int:
        return (self.config.rows + self.config.spare) * self.config.columns

    def longer(self, factor: float, n: int, seed: int, start: int = 0) -> Batch:
        """Grids with more rows, both marks within as many of them as in training."""
        rows = self.config.rows + self.config.spare
        spare = round(factor * rows) - self.config.rows
        return GridDistance(replace(self.config, spare=spare)).sample(n, seed, start)

    def sample(self, n: int, seed: int, start: int = 0) -> Batch:
        index, columns = np.arange(start, start + n), self.config.columns
        cells = self.config.rows * columns
        sizes = np.array([cells, cells - 1])
        first, second = indexed_integers(seed, "grid_distance/cells", index, 2, sizes).T
        second = second + (second >= first)
        down = indexed_integers(seed, "grid_distance/above", index, 1, self.config.spare + 1)[:, 0]
        words = indexed_integers(
            seed, "grid_distance/words", index, self.max_length, self.config.vocabulary - FILLER
        )
        words = words + FILLER
        for cell, mark in ((first, FIRST), (second, SECOND)):
            words[np.arange(n), cell + down * columns] = mark
        (r1, c1), (r2, c2) = np.divmod(first, columns), np.divmod(second, columns)
        return grid_batch(words, np.abs(r1 - r2) + np.abs(c1 - c2), columns)

    def solve(self, batch: Batch, seed: int) -> Int[Tensor, " n"]:
        """The distance between the marks."""
        (r1, c1), (r2, c2) = (place_of(batch, mark) for mark in (FIRST, SECOND))
        return (r1 - r2).abs() + (c1 - c2).abs()

    def bayes_accuracy(self, n: int = 8000, seed: int = 0) -> float:
        """1: the grid decides its label."""
        return 1.0
