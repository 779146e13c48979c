"""Locks of vision towers: what is kept, and that each fault of the audit's tests moves it."""

from dataclasses import replace

import pytest
from tests.checkpoints.audit.injections import placed
from tests.checkpoints.audit.test_vision import qwen2_vl
from tests.checkpoints.audit.vision import small_tower
from tests.checkpoints.audit.vision_faults import (
    DINO,
    FAULTS,
    KIMI,
    PIXTRAL,
    QWEN,
    head_1,
    of_places,
    of_table,
)
from tests.checkpoints.audit.zoo import in_precision

from spectrope.checkpoints.lock import lock, read_lock, write_lock
from spectrope.checkpoints.lock.opening import checked
from spectrope.cli import main
from spectrope.core import unwatched


def locked(model, **options):
    return lock(model, watch=unwatched, **options)


@pytest.mark.sampled
@pytest.mark.parametrize("family", [DINO, PIXTRAL, QWEN, "qwen2_5_vl_vision", KIMI])
def test_an_unchanged_tower_matches_the_file_of_its_lock(family, tmp_path):
    held = locked(small_tower(family))
    assert [layer.name for layer in held.vision] == ["vision 0", "vision 1"]
    read = read_lock(write_lock(held, tmp_path / "spectrope.lock"))
    assert read == held
    result = checked(read, small_tower(family), unwatched)
    assert result.ok, str(result)
    assert result.uncovered == ()


@pytest.mark.sampled
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_that_arrives_later_is_named(name, monkeypatch):
    family, inject, expected, message = FAULTS[name]
    held, model = locked(small_tower(family)), small_tower(family)
    inject(model, monkeypatch)
    result = checked(held, model, unwatched)
    assert {(move.where, move.code) for move in result.moves} == {
        ("layer vision 0", expected), ("layer vision 1", expected),
    }  # fmt: skip
    told = message.rpartition(": ")[2]
    assert all(told in str(move) for move in result.moves), result.moves[0]


def test_a_fault_of_one_head_is_named(monkeypatch):
    held, model = locked(small_tower(PIXTRAL)), small_tower(PIXTRAL)
    of_table(head_1, (1,))(model, monkeypatch)
    (move,) = checked(held, model, unwatched).moves
    assert (move.where, move.code) == ("layer vision 1", "SPE110")
    assert "encoding of queries of head 1" in str(move)


@pytest.mark.parametrize("base", [64.0, 101.0])
def test_a_base_that_is_changed_in_the_configuration_too_is_named(base):
    held = locked(small_tower(DINO))
    moves = checked(held, small_tower(DINO, rope_theta=base), unwatched).moves
    assert [move.code for move in moves] == ["SPE101", "SPE101"]
    assert f"base 100 locked, rotary by row and column, base {base:g} now" in str(moves[0])


def test_what_was_wrong_when_it_was_locked_is_accepted_and_its_repair_is_not(monkeypatch):
    wrong = small_tower(PIXTRAL)
    of_places(lambda x: x.flip(-1))(wrong, monkeypatch)
    held = locked(wrong)
    assert held.vision[0].findings[0].startswith("SPE115 axes")
    assert checked(held, wrong, unwatched).ok
    moves = checked(held, small_tower(PIXTRAL), unwatched).moves
    assert [move.code for move in moves] == ["SPE115", "SPE115"]


def test_bfloat16_matches_a_lock_in_float32():
    held = locked(small_tower(PIXTRAL))
    result = checked(held, in_precision(small_tower(PIXTRAL), "bfloat16"), unwatched)
    assert result.ok, str(result)
    assert "arithmetic float32 to bfloat16" in result.between


def test_a_tower_beside_a_text_is_locked_with_it(monkeypatch):
    model = qwen2_vl()
    held = locked(model, length=32)
    assert [layer.name for layer in held.every_layer] == ["0", "1", "vision 0", "vision 1"]
    of_places(lambda x: x.flip(-1))(model.model.visual, monkeypatch)
    moves = checked(held, model, unwatched).moves
    assert [(move.where, move.code) for move in moves] == [
        ("layer vision 0", "SPE115"), ("layer vision 1", "SPE115"),
    ]  # fmt: skip


def test_a_lock_from_before_towers_were_locked_says_what_it_lacks():
    model = qwen2_vl()
    held = replace(locked(model, length=32), vision=(), kinds=())
    result = checked(held, model, unwatched)
    assert result.ok
    assert result.whole
    told = "not compared: layer vision 0, layer vision 1, which `spectrope lock` would add;"
    assert f"Not in the lock, so {told}" in " ".join(str(result).split())


def test_pairs_that_turn_with_another_axis_of_pictures_are_a_change(monkeypatch):
    model = qwen2_vl()
    held = locked(model, length=32)
    placed(lambda p: p[:1].expand(3, -1, -1))(model, monkeypatch)
    result = checked(held, model, unwatched)
    assert {move.where for move in result.moves} == {"layer 0", "layer 1"}
    assert all("SPE115" in str(move) for move in result.moves)


def test_the_commands_lock_and_check_a_tower(tmp_path, capsys, monkeypatch):
    small_tower(DINO).save_pretrained(tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    assert main(["lock", "model"]) == 0
    assert "rotary by row and column, base 100" in capsys.readouterr().out
    assert main(["check"]) == 0
    assert "Nothing changed." in capsys.readouterr().out
    small_tower(DINO, rope_theta=64.0).save_pretrained(tmp_path / "model")
    assert main(["check"]) == 1
    assert "layer vision 1: SPE101 base" in capsys.readouterr().out
