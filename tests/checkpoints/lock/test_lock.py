"""Locks: what is kept, what moves it, and what does not."""

import copy
from dataclasses import replace

import pytest
import torch
from tests.checkpoints.audit.families import FAMILIES, ROPES, llama
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

import spectrope as sp
from spectrope.checkpoints.adapters import open_model
from spectrope.checkpoints.lock import CheckedLock, Lock, check, lock, read_lock, write_lock
from spectrope.checkpoints.lock.opening import checked
from spectrope.core import ConfigError, StoreError

LENGTH = 48


def locked(model, **options):
    return lock(model, length=LENGTH, watch=sp.unwatched, **options)


@pytest.fixture(scope="module")
def model():
    return llama(rope_parameters=ROPES["default"])


@pytest.fixture(scope="module")
def held(model):
    return locked(model)


@pytest.mark.sampled
@pytest.mark.parametrize(
    "family", ["llama-yarn", "llama-longrope", "bloom", "t5", "opt", "gemma3", "smollm3"]
)
def test_a_lock_survives_its_file_and_an_unchanged_model_matches_it(family, tmp_path):
    model = FAMILIES[family]()
    held = locked(model, serving_modes=False)
    read = read_lock(write_lock(held, tmp_path / "spectrope.lock"))
    assert read == held
    result = checked(read, model, sp.unwatched)
    assert result.ok, str(result)
    assert result.whole


def test_it_holds_every_head_with_a_tolerance(held):
    assert [len(layer.heads) for layer in held.layers] == [4, 4]
    head = held.layers[0].heads[0]
    assert head.position == "relative"
    assert head.lags[:3] == (1, 2, 3)
    assert 0 < head.tolerance < 0.01 * max(map(abs, head.kernel))
    assert {one.path for one in held.paths} >= {"cached decoding", "left padding", "packed sequences"}
    assert {"torch", "transformers", "python"} <= held.versions.keys()


def with_base(model, base):
    """The model with rotary tables of another base; its configuration still declares the old one."""
    other = copy.deepcopy(model)
    config = copy.deepcopy(model.config)
    config.rope_parameters = ROPES["default"] | {"rope_theta": base}
    other.model.rotary_emb = LlamaRotaryEmbedding(config)
    return other


def test_a_changed_base_moves_every_layer_and_is_named(model, held):
    result = checked(held, with_base(model, 1e4), sp.unwatched)
    assert [(move.where, move.code) for move in result.moves] == [
        ("layer 0", "SPE101"),
        ("layer 1", "SPE101"),
    ]
    told = "base: 500000 locked, 10000 now (rotary, base 500000 is still declared)"
    assert [str(move) for move in result.moves] == [told, told]
    assert "Changed since the lock: no library version; config.json was not compared." in str(result)


def test_it_says_between_which_versions(held):
    earlier = replace(held, versions=held.versions | {"transformers": "5.0.0"})
    result = check(earlier, replace(held, layers=held.layers[:1]))
    assert [str(move) for move in result.moves] == ["layers: rotary, base 500000 locked, missing now"]
    assert result.between == f"transformers 5.0.0 to {held.versions['transformers']}"
    assert "transformers 5.0.0 to " in str(result)


def permuted(model, order):
    """The model with rows of the query and key projections of layer 1 in another order within each head."""
    other = copy.deepcopy(model)
    attention = other.model.layers[1].self_attn
    for projection in (attention.q_proj, attention.k_proj):
        rows = projection.weight.data.unflatten(0, (-1, len(order)))
        projection.weight.data = rows[:, order].flatten(0, 1).contiguous()
    return other


HALVES_TO_ADJACENT = torch.arange(16).view(2, 8).T.flatten()


def test_permuted_rows_move_the_kernels_of_their_layer_alone(model, held):
    result = checked(held, permuted(model, HALVES_TO_ADJACENT), sp.unwatched)
    assert [(move.where, move.code) for move in result.moves] == [("layer 1", "SPE701")]
    assert "heads 0, 1, 2, 3; a different order of the rows of queries and keys" in str(result.moves[0])
    assert result.whole


def test_other_weights_are_no_move_but_leave_the_answer_incomplete(model, held):
    tuned = copy.deepcopy(model)
    tuned.model.layers[0].self_attn.q_proj.weight.data *= 1.1
    result = checked(held, tuned, sp.unwatched)
    assert result.ok
    assert result.other_weights == ("layer 0",)
    assert "layer 0: kernels of heads were not compared" in str(result)


def test_bfloat16_matches_a_lock_in_float32_and_still_shows_permuted_rows(model, held):
    low = copy.deepcopy(model).to(torch.bfloat16)
    low.model.rotary_emb = copy.deepcopy(model.model.rotary_emb)  # which loading keeps in float32
    result = checked(held, low, sp.unwatched)
    assert result.ok, str(result)
    assert "arithmetic float32 to bfloat16" in result.between
    turned = permuted(low, HALVES_TO_ADJACENT)
    assert [move.code for move in checked(held, turned, sp.unwatched).moves] == ["SPE701"]


def test_a_tolerance_in_the_file_is_honoured(model, held, tmp_path):
    near = with_base(model, 5e5 * 1.01)
    assert not checked(held, near, sp.unwatched).ok
    lenient = replace(held, layers=tuple(replace(one, tolerance=0.02) for one in held.layers))
    kept = read_lock(write_lock(lenient, tmp_path / "lock"))
    assert checked(kept, near, sp.unwatched).ok
    assert not checked(kept, with_base(model, 1e4), sp.unwatched).ok


def test_what_was_wrong_when_it_was_locked_is_accepted(model):
    wrong = with_base(model, 1e4)
    held = locked(wrong, serving_modes=False)
    assert held.layers[0].findings[0].startswith("SPE101 base: 500000 declared, 10000 effective")
    assert checked(held, wrong, sp.unwatched).ok
    assert not checked(held, model, sp.unwatched).ok


def test_a_table_of_positions_that_moves_is_named():
    model = FAMILIES["opt"]()
    held = locked(model, serving_modes=False)
    model.model.decoder.embed_positions.weight.data *= 2
    [move] = checked(held, model, sp.unwatched).moves
    assert (move.where, move.what) == ("embeddings of decoder.layers.0", "vectors by position")


@pytest.mark.parametrize("change", ["sign", "columns"])
def test_a_table_whose_norms_stay_is_named_by_its_direction(change, tmp_path):
    model = FAMILIES["opt"]()
    held = read_lock(write_lock(locked(model, serving_modes=False), tmp_path / "lock"))
    assert checked(held, model, sp.unwatched).ok
    weight = model.model.decoder.embed_positions.weight.data
    weight.copy_(-weight if change == "sign" else weight.roll(1, -1))
    [move] = checked(held, model, sp.unwatched).moves
    assert "component" in str(move)
    earlier = tuple(replace(one, along=()) for one in held.embeddings)
    result = checked(replace(held, embeddings=earlier), model, sp.unwatched)
    assert result.ok
    assert "directions of the vectors" in "".join(result.uncovered)


def test_a_lock_whose_numbers_are_lost_is_refused(held, tmp_path):
    path = write_lock(held, tmp_path / "lock")
    text = path.read_text(encoding="utf-8")
    for field in ("frequencies", "kernel"):
        where = text.index(f"{field} = [") + len(field) + 4
        path.write_text(text[:where] + text[text.index(",", where) + 1 :], encoding="utf-8")
        with pytest.raises(ConfigError, match=r"must be (one per lag|of 8 frequencies and errors)"):
            read_lock(path)


def test_serving_modes_that_differ_now_are_named(held):
    after = replace(held, paths=tuple(replace(one, verdict="differs") for one in held.paths[:1]))
    moves = check(held, after).moves
    assert {move.code for move in moves} == {"SPE703"}
    assert len(moves) == len(held.paths)


def test_a_slice_of_layers_is_locked_and_checked(model, tmp_path):
    model.save_pretrained(tmp_path)
    held = locked(open_model(tmp_path, layers=slice(1, 2)), layers_taken="1:2")
    assert [layer.name for layer in held.layers] == ["1"]
    result = checked(held, open_model(tmp_path, layers=slice(1, 2)), sp.unwatched)
    assert result.ok
    assert isinstance(result, CheckedLock)
    assert result.to_frame()["verdict"].unique().to_list() == ["as locked"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("format = 9", "format must be 1; got 9"),
        ("not toml", "is not a lock: "),
        ("format = 1", "Lock.model"),
        ("format = 1\nlayers = 3", "spectrope lock` writes it anew"),
    ],
)
def test_a_file_that_is_no_lock_is_refused_in_one_line(text, message, tmp_path):
    (tmp_path / "spectrope.lock").write_text(text)
    with pytest.raises(ConfigError, match=message) as caught:
        read_lock(tmp_path / "spectrope.lock")
    assert "\n" not in str(caught.value)


def test_a_missing_lock_is_refused(tmp_path):
    with pytest.raises(StoreError, match="cannot read"):
        read_lock(tmp_path / "spectrope.lock")


def test_the_layers_that_are_no_longer_read_are_named(held):
    result = check(held, replace(held, unread=("layers.0.self_attn",)))
    assert [move.code for move in result.moves] == ["SPE702"]
    assert not any("self_attn" in one for one in result.uncovered)  # It has moved, and was in the lock.
    assert isinstance(held, Lock)
