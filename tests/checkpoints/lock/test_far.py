"""What changes beyond the positions of a lock is a change, and what was not looked at there is said."""

import copy
from dataclasses import replace

import pytest
from tests.checkpoints.audit.families import FAMILIES
from tests.checkpoints.audit.test_far import SOUND, mistral, phi3, windowless

import spectrope as sp
from spectrope.checkpoints.lock import check, lock, read_lock, write_lock
from spectrope.checkpoints.lock.opening import checked
from spectrope.checkpoints.lock.reports import junit, sarif


def locked(model):
    return lock(model, length=32, serving_modes=False, watch=sp.unwatched)


def dynamic(factor, trained=256):
    rope = {"rope_type": "dynamic", "factor": factor, "rope_theta": 1e4}
    return mistral(sliding_window=None, max_position_embeddings=trained, rope_parameters=rope)


def temperature(**changes):
    model = SOUND["chunks and a temperature"]()
    for name, value in changes.items():
        setattr(model.config, name, value)
    return type(model)(model.config).eval()


def moves(before, after):
    return [(move.code, str(move)) for move in check(locked(before), locked(after)).moves]


@pytest.mark.parametrize("name", ["a long window", "chunks and a temperature", "Llama 3", "dynamic"])
def test_an_unchanged_model_matches_its_lock_from_a_file(name, tmp_path):
    model = dynamic(2.0) if name == "dynamic" else SOUND[name]()
    held = locked(model)
    read = read_lock(write_lock(held, tmp_path / "spectrope.lock"))
    assert read == held
    assert read.layers[0].far.length == model.config.max_position_embeddings * (2 if name == "dynamic" else 1)
    assert checked(read, model, sp.unwatched).ok


@pytest.mark.parametrize(
    ("window", "now"), [(2048, "causal window 2048 now"), (None, "no window or chunk now")]
)
def test_a_window_that_changes_in_the_configuration_too_is_a_change(window, now):
    found = moves(mistral(), mistral(sliding_window=window))
    assert found == [("SPE202", f"mask: causal window 4096 locked, {now} (as declared, and looked at)")] * 2


def test_a_window_that_the_code_drops_is_a_change(monkeypatch):
    held, model = locked(mistral()), mistral()
    windowless(model, monkeypatch)
    (move, *_) = check(held, locked(model)).moves
    assert move.code == "SPE202"
    assert "causal effective" in str(move)


def test_another_schedule_of_long_sequences_is_a_change():
    (one, *_) = moves(dynamic(2.0), dynamic(4.0))
    assert one[0] == "SPE102"
    assert "rad per position in a sequence of 512 locked, pair" in one[1]
    (one, *_) = moves(dynamic(2.0), dynamic(2.0, trained=512))
    assert (
        "scaling: another schedule after 256 tokens locked, another schedule after 512 tokens now" in one[1]
    )
    (one, *_) = moves(mistral(sliding_window=None, max_position_embeddings=256), dynamic(2.0))
    assert "scaling: one schedule at all lengths locked, another schedule after 256 tokens now" in one[1]


def test_other_factors_of_long_sequences_are_a_change():
    model = phi3()
    other = dict(model.config.rope_parameters)
    other["long_factor"] = [1.5 * one for one in other["long_factor"]]
    changed = phi3()
    changed.config.rope_parameters = other
    (one, *_) = moves(model, type(model)(changed.config).eval())
    assert one[0] == "SPE102"
    assert "in a sequence of 131072 now" in one[1]


def test_another_floor_of_a_temperature_is_a_change():
    for floor in (1024, 7000):
        (one, *_) = moves(temperature(), temperature(floor_scale=floor))
        assert one[0] == "SPE403"
        assert "query scale: grows " in one[1]


@pytest.mark.parametrize("name", ["a long window", "chunks and a temperature"])
def test_a_longer_declared_length_is_none(name):
    model = SOUND[name]()
    config = copy.deepcopy(model.config)
    config.max_position_embeddings *= 2
    longer = type(model)(config).eval()
    longer.load_state_dict(model.state_dict())
    assert moves(model, longer) == []


def test_what_is_declared_beyond_is_held_also_where_a_layer_differs():
    """Its first positions turn as the configuration does not say, which was accepted."""

    def wrong(**changes):
        model = mistral(**changes)
        model.model.rotary_emb.inv_freq *= 0.5
        return model

    assert locked(wrong()).layers[0].verdict == "differs"
    (one, *_) = moves(wrong(), wrong(sliding_window=2048))
    assert one[0] == "SPE202"
    assert "(as declared; not looked at)" in one[1]


def test_a_tolerance_accepts_a_base_and_no_window():
    held = locked(mistral())
    held = replace(held, layers=tuple(replace(one, tolerance=0.2) for one in held.layers))
    other = {"rope_type": "default", "rope_theta": 10100.0}
    assert check(held, locked(mistral(rope_parameters=other))).ok
    (move, *_) = check(held, locked(mistral(rope_parameters=other, sliding_window=2048))).moves
    assert move.code == "SPE202"


def test_a_lock_from_before_far_positions_were_locked_says_what_it_lacks(tmp_path):
    held = locked(mistral())
    old = replace(held, layers=tuple(replace(one, far=None) for one in held.layers))
    result = check(old, locked(mistral(sliding_window=2048)))
    assert result.ok
    assert result.lacking == ("what changes beyond 32 positions, which `spectrope lock` would add",)
    assert ("layer 0", "rotary, base 10000", "rotary, base 10000") in [*result.places()]
    assert "what changes beyond 32 positions, which" in junit(result)
    assert "what changes beyond 32 positions, which" in sarif(result, tmp_path / "spectrope.lock")


def test_what_was_not_looked_at_is_said():
    result = check(locked(mistral()), locked(mistral()))
    assert any(one.startswith("positions from 32 on, except") for one in result.uncovered)
    assert "passes of more than 32 tokens" in result.uncovered


def test_the_window_is_shown():
    (one, *_) = locked(mistral()).layers
    assert one.described == "rotary, base 10000, causal window 4096"
    (one, *_) = locked(mistral(sliding_window=24)).layers
    assert one.described == "rotary, base 10000, causal window 24"


def test_vectors_of_tables_that_a_lock_does_not_hold_are_named():
    held = locked(FAMILIES["gpt2"]())
    assert held.outside[0] == "wpe at other than 10 positions up to 24"
