"""Common functions of tasks on a grid: batches with positions on three axes, and the position of a mark."""

import numpy as np
import torch
from torch import Tensor

from spectrope.encodings import grid_positions
from spectrope.tasks.base import Batch


def grid_batch(words: np.ndarray, labels: np.ndarray, columns: int) -> Batch:
    """Whole grids as a batch.

    Args:
        words: Token ids row by row, with shape (n, rows * columns).
        labels: With shape (n,).
        columns: Columns of the grid.
    """
    n, cells = words.shape
    cell = torch.arange(cells).expand(n, -1)
    positions = grid_positions(cell // columns, cell % columns)
    inputs, lengths = torch.from_numpy(words.astype(np.int64)), torch.full((n,), cells)
    return Batch(inputs, torch.from_numpy(labels.astype(np.int64)), lengths, positions)


def place_of(batch: Batch, mark: int) -> tuple[Tensor, Tensor]:
    """Row and column of the cell with a mark, each (n,)."""
    assert batch.positions is not None
    cell = (batch.inputs == mark).int().argmax(1)
    row, column = batch.positions[torch.arange(len(batch)), cell, -2:].unbind(-1)
    return row, column
