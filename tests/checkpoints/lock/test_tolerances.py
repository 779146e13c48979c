"""What a lock accepts stays visible, and what weights explain is no change of the encoding."""

import copy
from dataclasses import replace

import pytest
import torch
from tests.checkpoints.audit.families import FAMILIES, llama
from tests.checkpoints.lock.test_lock import HALVES_TO_ADJACENT, permuted

import spectrope as sp
from spectrope.checkpoints.lock import check, lock, read_lock, write_lock
from spectrope.checkpoints.lock.kernels import ACCEPTED, MOVED, UNCOMPARED
from spectrope.checkpoints.lock.reports import junit, sarif
from spectrope.checkpoints.lock.terms import LEARNED


def locked(model):
    return lock(model, length=48, serving_modes=False, watch=sp.unwatched)


def with_base(base):
    return llama(rope_parameters={"rope_type": "default", "rope_theta": base})


def lenient(held, tolerance):
    return replace(held, layers=tuple(replace(one, tolerance=tolerance) for one in held.layers))


@pytest.fixture(scope="module")
def held():
    return locked(with_base(10000.0))


def test_an_accepted_base_is_shown_and_kernels_are_compared(held, tmp_path):
    kept = read_lock(write_lock(lenient(held, 0.01), tmp_path / "lock"))
    result = check(kept, locked(with_base(10010.0)))
    assert (result.ok, result.whole) == (True, True)
    assert [one.where for one in result.accepted] == ["layer 0", "layer 1"]
    assert "accepted: layer 0: SPE101 base: 10000 locked, 10010 now" in str(result)
    assert result.to_dict()["accepted"][0]["code"] == "SPE101"
    assert set(result.to_frame()["verdict"]) == {"as locked", "accepted"}
    assert "accepted: base: 10000 locked" in junit(result)
    assert "accepted: layer 0: base: 10000 locked" in sarif(result, tmp_path / "lock")


def test_an_accepted_base_hides_no_order_of_rows(held):
    other = permuted(with_base(10010.0), HALVES_TO_ADJACENT)
    [move] = check(lenient(held, 0.01), locked(other)).moves
    assert (move.where, move.code) == ("layer 1", "SPE701")


def test_other_accepted_departures_leave_kernels_uncompared(held):
    layers = tuple(replace(one, encoding=replace(one.encoding, scale=0.2501)) for one in held.layers)
    assert all(abs(one.encoding.scale - 0.25) < 1e-6 for one in held.layers)
    far_off = tuple(replace(one, encoding=replace(one.encoding, scale=0.252)) for one in held.layers)
    assert check(replace(held, layers=layers), held).whole
    result = check(lenient(replace(held, layers=far_off), 0.1), held)
    assert result.ok
    assert {one.why for one in result.uncompared} == {ACCEPTED}
    assert result.to_frame()["verdict"].to_list()[1:] == ["compared in part"] * 2


def test_a_raised_tolerance_of_heads_and_of_embeddings_is_shown(held):
    other = locked(permuted(with_base(10000.0), HALVES_TO_ADJACENT))
    heads = [replace(one, heads=tuple(replace(x, tolerance=9.0) for x in one.heads)) for one in held.layers]
    result = check(replace(held, layers=tuple(heads)), other)
    assert result.ok
    assert [one.where for one in result.accepted] == ["layer 1"]
    model = FAMILIES["opt"]()
    before = locked(model)
    model.model.decoder.embed_positions.weight.data *= 1.05
    wide = replace(before, embeddings=tuple(replace(one, tolerance=0.2) for one in before.embeddings))
    result = check(wide, locked(model))
    assert (result.ok, result.whole) == (True, True)
    assert [one.what for one in result.accepted] == ["vectors by position"]


def trained(model, by, seed=0):
    """The model with all weights moved by a share of their size."""
    other, rng = copy.deepcopy(model), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for one in other.parameters():
            one += by * float(one.std(correction=0)) * torch.randn(one.shape, generator=rng)
    return other


def test_a_learned_table_that_was_trained_with_the_weights_leaves_the_answer_incomplete():
    model = FAMILIES["gpt2"]()
    before = locked(model)
    result = check(before, locked(trained(model, 0.02)))
    assert result.ok, str(result)
    assert (result.uncompared[-1].where, result.uncompared[-1].why) == ("embeddings of h.0", LEARNED)
    alone = copy.deepcopy(model)
    alone.transformer.wpe.weight.data = trained(model.transformer.wpe, 0.02).weight.data
    [move] = check(before, locked(alone)).moves
    assert move.what == "vectors by position"


def test_sinks_that_were_trained_with_the_weights_leave_the_answer_incomplete(held):
    def with_sinks(one, size):
        return replace(one, encoding=replace(one.encoding, sinks=(size,) * 4))

    before = replace(held, layers=tuple(with_sinks(one, 0.5) for one in held.layers))
    after = replace(held, layers=tuple(with_sinks(one, 0.6) for one in held.layers))
    assert {one.code for one in check(before, after).moves} == {"SPE406"}
    heads = [replace(one, heads=tuple(replace(x, key=2 * x.key) for x in one.heads)) for one in after.layers]
    result = check(before, replace(after, layers=tuple(heads)))
    assert result.ok
    assert [one.why for one in result.uncompared] == [LEARNED, UNCOMPARED] * 2


def wide():
    """A model whose head is so wide that light moves of its weights leave norms as they are."""
    return llama(hidden_size=128, num_attention_heads=1, num_key_value_heads=1, head_dim=128)


def test_weights_rounded_to_bfloat16_and_stored_as_float32_are_no_other_encoding():
    model = wide()
    rounded = copy.deepcopy(model)
    with torch.no_grad():
        for one in rounded.parameters():
            one.copy_(one.bfloat16().float())
    before = locked(model)
    result = check(before, locked(rounded))
    assert result.ok, str(result)
    assert {one.why for one in result.uncompared} == {MOVED}
    assert not check(without_magnitudes(before), locked(rounded)).ok
    order = torch.arange(128).view(2, 64).T.flatten()
    moves = check(before, locked(permuted(rounded, order))).moves
    assert [(one.where, one.code) for one in moves] == [("layer 1", "SPE701")]


def without_magnitudes(held):
    """A lock as earlier versions wrote it."""
    layers = (replace(one, heads=tuple(replace(x, magnitudes=()) for x in one.heads)) for one in held.layers)
    return replace(held, layers=tuple(layers))


def test_weights_that_moved_lightly_are_said_to_have_moved():
    model = wide()
    found = [check(locked(model), locked(trained(model, by))) for by in (1e-3, 2e-3, 4e-3)]
    assert all(one.ok for one in found), [str(one) for one in found]
    assert {why for one in found for why in one.reasons} & {MOVED}


def test_other_heads_and_another_module_are_named_and_not_called_other_weights(held):
    moved = replace(held.layers[0], module="layers.0.attention")
    fewer = replace(held.layers[1], heads=held.layers[1].heads[:2])
    result = check(held, replace(held, layers=(moved, fewer)))
    assert result.other_weights == ()
    [first, second] = (one.why for one in result.uncompared)
    assert "the attention module is layers.0.attention now, layers.0.self_attn when it was locked" in first
    assert "there are 2 heads, 4 when it was locked" in second
