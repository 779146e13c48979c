"""How many marks a column of a grid holds."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from jaxtyping import Int
from torch import Tensor

from spectrope.core import indexed_integers, indexed_subsets, require, require_least
from spectrope.tasks.base import Batch, Size, Task, TaskConfig
from spectrope.tasks.grids import grid_batch, place_of

ASKED, COUNTED, FILLER = 1, 2, 3  # Token ids: of the cell that asks, of what is counted, first filler.


class GridCounting(Task, name="grid_counting"):
    r"""A grid, row by row, with one query cell; the label is the number of marks in its column.

    The column and the row of the query cell are uniform, the count is :math:`c \sim U\{0..k\}`, and the c
    cells are uniform in the column. In every other column, each cell has a mark with the same probability as
    in this one, so that the total number of marks reveals only part of the label: at `mini`, the best guess
    from it is right in 30 % of examples, and the best guess without it in 17 %. The task supplies
    positions (order, 0, row, column).
    """

    @dataclass(frozen=True, kw_only=True)
    class Config(TaskConfig):
        """Sizes of the grid.

        Args:
            vocabulary: Number of token ids; padding and the marks take three.
            rows: Rows of the grid.
            columns: Columns of the grid.
            max_count: Most marks in the column that is asked for.
        """

        vocabulary: int = 128
        rows: int = 10
        columns: int = 12
        max_count: int = 9

        def __post_init__(self) -> None:
            require_least(self, 2, "rows", "columns")
            require_least(self, 4, "vocabulary")
            fits = 1 <= self.max_count < self.rows
            require(fits, self, "max_count", f"from 1 to {self.rows - 1}, one less than the rows")

    sizes: ClassVar[Mapping[str, Size]] = {
        "mini": Size(config=Config(vocabulary=32, rows=6, columns=5, max_count=5)),
        "small": Size(config=Config(vocabulary=64, rows=8, columns=8, max_count=7)),
        "mid": Size(config=Config(vocabulary=64, rows=8, columns=8, max_count=7)),
    }

    @property
    def n_classes(self) -> int:
        return self.config.max_count + 1

    @property
    def vocabulary(self) -> int:
        return self.config.vocabulary

    @property
    def max_length(self) -> int:
        return self.config.rows * self.config.columns

    def longer(self, factor: float, n: int, seed: int, start: int = 0) -> Batch:
        """Grids with more rows and as many marks in the column."""
        rows = round(factor * self.config.rows)
        return GridCounting(replace(self.config, rows=rows)).sample(n, seed, start)

    def sample(self, n: int, seed: int, start: int = 0) -> Batch:
        index, rows, columns = np.arange(start, start + n), self.config.rows, self.config.columns
        sizes = np.array([rows, columns, self.n_classes])
        row, column, count = indexed_integers(seed, "grid_counting/asked", index, 3, sizes).T
        others = indexed_subsets(seed, "grid_counting/marks", index, count, rows - 1)
        fillers = self.config.vocabulary - FILLER
        words = indexed_integers(seed, "grid_counting/words", index, self.max_length, fillers) + FILLER
        grid = words.reshape(n, rows, columns).copy()
        chance = indexed_integers(seed, "grid_counting/elsewhere", index, self.max_length, 2 * (rows - 1))
        elsewhere = chance.reshape(n, rows, columns) < self.config.max_count
        grid[elsewhere] = COUNTED
        below = np.arange(rows - 1)
        marked = np.zeros((n, rows), bool)
        np.put_along_axis(marked, below + (below >= row[:, None]), others, 1)  # All but the asking cell.
        asked = words.reshape(n, rows, columns)[np.arange(n), :, column]
        grid[np.arange(n), :, column] = np.where(marked, COUNTED, asked)
        grid[np.arange(n), row, column] = ASKED
        return grid_batch(grid.reshape(n, -1), count, columns)

    def solve(self, batch: Batch, seed: int) -> Int[Tensor, " n"]:
        """The number of marks in the column of the asking cell."""
        assert batch.positions is not None
        _, column = place_of(batch, ASKED)
        return ((batch.inputs == COUNTED) & (batch.positions[..., -1] == column[:, None])).sum(1)

    def bayes_accuracy(self, n: int = 8000, seed: int = 0) -> float:
        """1: the grid decides its label."""
        return 1.0
