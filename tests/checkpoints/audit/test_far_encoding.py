"""Two layers are compared beyond the audited length by what each applies there."""

import copy
import re
from dataclasses import replace

import pytest
from tests.checkpoints.audit.families import llama
from tests.checkpoints.audit.test_far import mistral

import spectrope as sp
from spectrope.checkpoints.audit.far_encoding import FarEncoding, far_differences
from spectrope.checkpoints.lock import check, lock

TURNING = FarEncoding(length=512, seen=True, frequencies=(1.0, 0.01), gain=1.2)
SLOW = "pair 1 at 0.01 rad per position in a sequence of 512"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"frequencies": (1.0, 0.01 * (1 + 1e-6))}, []),
        ({"length": 1024}, []),
        ({"seen": False}, []),
        (
            {"frequencies": (1.0, 0.02)},
            [f"frequencies: {SLOW} (as declared, and looked at)"],
        ),
        (
            {"frequencies": (), "seen": False},
            [f"frequencies: {SLOW} (as declared; not looked at)"],
        ),
        ({"grows": False}, [f"frequencies: {SLOW} (as declared, and looked at)"]),
        ({"grows": True}, []),
        ({"gain": 1.3}, ["attention factor: 1.2 in a sequence of 512 (as declared, and looked at)"]),
        ({"gain": None}, []),
        ({"switch": 256}, ["scaling: one schedule at all lengths (as declared, and looked at)"]),
        (
            {"growth": (1.0, 1.0, 1.1)},
            ["query scale: grows 1 times (from position 0 to 1048576, by the declared formula)"],
        ),
        (
            {"window": "causal window 600", "window_seen": False},
            ["mask: no window or chunk (as declared; not looked at)"],
        ),
    ],
)
def test_the_respect_is_named(change, said):
    found = far_differences(TURNING, replace(TURNING, **change))
    assert [f"{one.what}: {one.expected} ({one.note})" for one in found] == said


def test_a_tolerance_accepts_frequencies_and_factors_but_no_window():
    other = replace(TURNING, window="causal window 600", frequencies=(1.0, 0.0101), gain=1.21)
    other = replace(other, growth=(1.0, 1.0, 1.01))
    assert [one.what for one in far_differences(TURNING, other, 0.05)] == ["mask"]


def test_nothing_is_known_where_far_positions_were_left_out():
    assert [*far_differences(None, TURNING)] == [*far_differences(TURNING, None)] == []


def test_a_window_that_no_declared_position_reaches_is_none():
    for window in (None, 32768, 40000):
        found = sp.audit(mistral(sliding_window=window), length=32, serving_modes=False, watch=sp.unwatched)
        assert {(layer.far.window, layer.far.window_seen) for layer in found.layers} == {("", True)}


def test_windows_beyond_the_audited_length_are_a_difference_of_two_models():
    one, other = (
        sp.audit(model, length=32, serving_modes=False, watch=sp.unwatched)
        for model in (mistral(), mistral(sliding_window=2048))
    )
    assert sp.diff(one, one).same
    found = sp.diff(one, other)
    said = " ".join(str(found).split())
    assert "mask, causal window 4096 against causal window 2048 (as declared, and looked at)" in said
    assert "Not compared: positions from 32 on, except " in said
    with_more = sp.audit(mistral(max_position_embeddings=65536), length=32, watch=sp.unwatched)
    assert sp.diff(one, with_more).same


def test_it_is_left_out_with_far_positions():
    found = sp.audit(mistral(), length=32, reach=False, serving_modes=False, watch=sp.unwatched)
    assert [layer.far for layer in found.layers] == [None, None]


def test_a_scaling_below_the_rounding_of_bfloat16_is_seen_by_its_formula():
    models = []
    for factor in (8.0, 32.0):
        rope = {"rope_type": "llama3", "rope_theta": 5e5, "factor": factor, "low_freq_factor": 1.0}
        rope |= {"high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
        sizes = {"hidden_size": 128, "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 128}
        model = llama(**sizes, max_position_embeddings=65536, rope_parameters=rope)
        turning = copy.deepcopy(model.model.rotary_emb)  # Which loading leaves in float32.
        models.append(model.bfloat16())
        model.model.rotary_emb = turning
    first, second = (lock(one, serving_modes=False, watch=sp.unwatched) for one in models)
    moves = check(first, second).moves
    assert {move.code for move in moves} == {"SPE102"}
    assert re.search(r"pair \d+ at \S+ rad .* locked, pair \d+ at \S+ rad", str(moves[0]))
    same = lock(models[0], serving_modes=False, watch=sp.unwatched)
    assert check(first, same).ok
    earlier = [replace(one, far=replace(one.far, frequencies=(), grows=None)) for one in first.layers]
    found = check(replace(first, layers=tuple(earlier)), same)
    assert found.ok
    assert any("declared frequencies, which show" in one for one in found.uncovered)
    assert not sp.compatible(*models, role="converted", watch=sp.unwatched).ok


def test_a_corrected_declaration_is_no_change_of_what_is_applied():
    models = [llama(rope_parameters={"rope_type": "default", "rope_theta": base}) for base in (1e4, 5e5)]
    models[0].model.rotary_emb = models[1].model.rotary_emb
    audits = [sp.audit(one, length=48, watch=sp.unwatched) for one in models]
    assert [one.outcome for one in audits] == ["differs", "matches"]
    assert sp.diff(*audits).same


def test_a_lock_of_an_earlier_version_raises_no_alarm():
    earlier = replace(TURNING, frequencies=(), grows=None)
    assert [*far_differences(earlier, replace(TURNING, grows=False))] == []
    assert [*far_differences(earlier, replace(TURNING, grows=True))]
