"""Batches: selection, movement and trimming act on every field, positions included."""

import pytest
import torch

from spectrope.tasks.base import Batch


@pytest.fixture
def batch():
    inputs = torch.tensor([[4, 5, 0, 0], [6, 7, 8, 0], [9, 0, 0, 0]])
    labels, lengths = torch.tensor([1, 0, 2]), torch.tensor([2, 3, 1])
    return Batch(inputs, labels, lengths, positions=10 * torch.arange(12).reshape(3, 4))


@pytest.mark.parametrize("index", [slice(1, 3), torch.tensor([1, 2])])
def test_selection_takes_the_same_rows_of_every_field(batch, index):
    part = batch[index]
    assert len(part) == 2
    for name in ("inputs", "labels", "lengths", "positions"):
        assert getattr(part, name).equal(getattr(batch, name)[1:])


def test_trimming_drops_the_columns_that_are_padding_everywhere(batch):
    trimmed = batch.trimmed()
    assert trimmed.inputs.equal(batch.inputs[:, :3])
    assert trimmed.positions.equal(batch.positions[:, :3])
    assert batch[2:].trimmed().inputs.tolist() == [[9]]


def test_a_batch_without_positions_stays_without(batch):
    plain = Batch(batch.inputs, batch.labels, batch.lengths)
    assert plain.trimmed().positions is None
    assert plain[:1].positions is None


def test_movement_takes_every_field_along(batch):
    moved = batch.to(torch.device("meta"))
    assert {moved.inputs.device.type, moved.labels.device.type, moved.positions.device.type} == {"meta"}
