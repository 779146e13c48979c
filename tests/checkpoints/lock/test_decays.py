"""Locks of layers of linear attention: what is kept, and that each fault of the audit's tests moves it."""

import pytest
from tests.checkpoints.audit.test_decays import FAULTS, LENGTH, LINEAR, linear, minimax

import spectrope as sp
from spectrope.checkpoints.lock import lock, read_lock, write_lock
from spectrope.checkpoints.lock.opening import checked


def locked(model):
    return lock(model, length=LENGTH, watch=sp.unwatched)


def test_an_unchanged_model_matches_the_file_of_its_lock(tmp_path):
    held = locked(minimax())
    assert [(layer.name, len(layer.rates)) for layer in held.decays] == [("1", 4), ("2", 4), ("3", 4)]
    assert held.decays[0].described.startswith("linear attention, decays of ")
    read = read_lock(write_lock(held, tmp_path / "spectrope.lock"))
    assert read == held
    result = checked(read, minimax(), sp.unwatched)
    assert result.ok, str(result)
    assert [where for where, _, _ in result.places() if where.startswith("layer")] == [
        "layer 0", "layer 1", "layer 2", "layer 3",
    ]  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_that_arrives_later_is_named(name, monkeypatch):
    inject, block_size, layers, _, expected, _ = FAULTS[name]
    held, model = locked(minimax(block_size)), minimax(block_size)
    inject(model, monkeypatch)
    moves = checked(held, model, sp.unwatched).moves
    found = {(move.where, move.code) for move in moves if move.where.startswith("layer")}
    assert found == {(f"layer {layer}", expected) for layer in layers}


def test_rates_that_were_wrong_and_change_again_are_named():
    model = minimax()
    for layer in LINEAR:
        linear(model, layer).slope_rate = 2 * linear(model, layer).slope_rate
    held = locked(model)
    assert checked(held, model, sp.unwatched).ok
    moves = [one for one in checked(held, minimax(), sp.unwatched).moves if one.where == "layer 1"]
    assert moves, "the repaired rates are not the locked ones"
