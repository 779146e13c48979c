"""Tasks on a grid: labels counted cell by cell, positions by hand, longer forms."""

import numpy as np
import pytest
import torch

from spectrope.core.errors import ConfigError
from spectrope.encodings.axial import AxialRoPE, MRoPE
from spectrope.encodings.base import ENCODINGS
from spectrope.models.decoder import Decoder, DecoderConfig
from spectrope.tasks.grid_counting import ASKED, COUNTED, GridCounting
from spectrope.tasks.grid_distance import FIRST, SECOND, GridDistance
from spectrope.tasks.picture import PictureCopy


def grids(batch, columns):
    return batch.inputs.numpy().reshape(len(batch), -1, columns)


def test_distances_are_those_of_the_marks_on_the_grid():
    task = GridDistance(rows=4, columns=3, vocabulary=10)
    batch = task.sample(400, seed=1)
    for grid, label in zip(grids(batch, 3), batch.labels.tolist(), strict=True):
        (first,), (second,) = (np.argwhere(grid == mark).tolist() for mark in (FIRST, SECOND))
        assert label == abs(first[0] - second[0]) + abs(first[1] - second[1])
    assert sorted(set(batch.labels.tolist())) == [1, 2, 3, 4, 5]


def test_positions_are_order_time_row_and_column():
    positions = GridDistance(rows=2, columns=3).sample(2, seed=0).positions
    expected = [[0, 0, 0, 0], [1, 0, 0, 1], [2, 0, 0, 2], [3, 0, 1, 0], [4, 0, 1, 1], [5, 0, 1, 2]]
    assert positions.tolist() == [expected, expected]


def test_counts_are_those_of_the_column_that_asks():
    task = GridCounting(rows=5, columns=4, max_count=3, vocabulary=10)
    batch = task.sample(400, seed=1)
    for grid, label in zip(grids(batch, 4), batch.labels.tolist(), strict=True):
        ((_, column),) = np.argwhere(grid == ASKED).tolist()
        assert label == (grid[:, column] == COUNTED).sum()
    assert sorted(set(batch.labels.tolist())) == [0, 1, 2, 3]


def test_marks_are_as_dense_in_other_columns():
    batch = GridCounting(rows=6, columns=5, max_count=5).sample(4000, seed=2)
    shares = [], []
    for grid in grids(batch, 5):
        ((_, column),) = np.argwhere(grid == ASKED).tolist()
        marks = grid == COUNTED
        shares[0].append(marks[:, column].sum() / 5)
        shares[1].append(np.delete(marks, column, 1).mean())
    assert abs(np.mean(shares[0]) - np.mean(shares[1])) < 0.02


@pytest.mark.parametrize(
    "task", [GridDistance(rows=3, columns=4), GridCounting(rows=4, columns=3, max_count=3)]
)
def test_longer_grids_have_more_rows_and_the_same_labels(task):
    longer = task.longer(2.0, 300, seed=3)
    assert longer.inputs.shape[1] == 2 * task.max_length
    assert int(longer.labels.max()) < task.n_classes
    assert torch.equal(task.solve(longer, 3), longer.labels)
    assert int(longer.positions[..., 2].max()) == 2 * task.config.rows - 1


@pytest.mark.parametrize(("order", "copy"), [("rows", [0, 1, 2, 3, 4, 5]), ("columns", [0, 3, 1, 4, 2, 5])])
def test_the_copy_runs_down_columns_or_along_rows(order, copy):
    task = PictureCopy(words=9, rows=2, columns=3, order=order)
    batch = task.sample(300, seed=4)
    for words, length, label in zip(
        batch.inputs.tolist(), batch.lengths.tolist(), batch.labels.tolist(), strict=True
    ):
        picture, shown = words[:6], length - 7
        assert words[6] == 10
        assert words[7:length] == [picture[cell] for cell in copy[:shown]]
        assert words[length:] == [0] * (12 - length)
        assert label == picture[copy[shown]] - 1
    assert set(batch.lengths.tolist()) == set(range(7, 13))
    assert batch.positions[0, :7].tolist()[5:] == [[5, 0, 1, 2], [6, 3, 3, 3]]


def test_longer_pictures_have_more_rows():
    task = PictureCopy(words=9, rows=2, columns=3)
    longer = task.longer(2.0, 50, seed=4)
    taller = PictureCopy(words=9, rows=4, columns=3)
    assert torch.equal(taller.solve(longer, 4), longer.labels)


@pytest.mark.parametrize("name", ["axial_rope", "mixed_rope", "mrope", "weierstrass", "rope", "alibi"])
def test_a_decoder_takes_grids_with_every_kind_of_encoding(name):
    task = PictureCopy(words=9, rows=2, columns=3)
    sizes = {"vocabulary": task.vocabulary, "n_labels": task.n_classes, "max_length": task.max_length}
    config = DecoderConfig(
        d_model=16, n_heads=2, n_layers=2, d_ff=16, encoding=ENCODINGS.config(name)(), **sizes
    )
    model, batch = Decoder(config).eval(), task.sample(4, seed=0)
    turned = batch.positions.clone()
    turned[..., -2:] = turned[..., -2:].flip(-1)
    with torch.no_grad():
        same = torch.allclose(
            model(batch), model(type(batch)(batch.inputs, batch.labels, batch.lengths, turned))
        )
    assert same == (name in ("rope", "alibi"))


def test_axes_reach_the_rotation_through_the_decoder():
    """A model of two encodings, one of which reads a single axis, gives each what it reads."""
    task = GridDistance(rows=2, columns=3)
    batch = task.sample(3, seed=0)
    q = torch.randn(3, 1, 6, 16, generator=torch.Generator().manual_seed(0))
    axial, mrope = AxialRoPE(head_dim=16), MRoPE(head_dim=16)
    for encoding in (axial, mrope):
        assert encoding(q, q, batch.positions, batch.positions).shape == (3, 1, 6, 6)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: GridDistance(rows=1), "rows must be at least 2"),
        (lambda: GridDistance(spare=-1), "spare must be at least 0"),
        (lambda: GridCounting(rows=4, max_count=4), "max_count must be from 1 to 3, one less than the rows"),
        (lambda: PictureCopy(words=1), "words must be at least 2"),
    ],
)
def test_what_breaks_a_rule_is_refused(make, message):
    with pytest.raises(ConfigError, match=message):
        make()
