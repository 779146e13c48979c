"""What single tokens, rows of a batch and later sequences get in serving modes."""

import json
from functools import cache

import pytest
from tests.checkpoints.audit.injections import attending, options
from tests.checkpoints.audit.museum import COOL, LENGTH, Exhibit, of
from tests.checkpoints.audit.serving.serving_faults import FAULTS, quarter_of_single_tokens
from transformers.cache_utils import Cache

from spectrope.checkpoints.audit import audit
from spectrope.checkpoints.audit.text import closing

FEW = ("llama", "llama4_text")  # The library takes the temperature of the latter from places in the row.


@cache
def is_sound(family, declared, length):
    """Whether the model without its fault matches; `declared` is JSON."""
    fields = dict(json.loads(declared))
    return audit(Exhibit("sound", "", family, of("501"), declared=fields).sound(), length=length).ok


@pytest.mark.sampled(most=12)
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_of_serving_is_found_in_its_mode(name, monkeypatch):
    one = FAULTS[name]
    case = Exhibit(name, "", one.family, of(one.code), one.inject, dict(one.declared), layers=None)
    assert is_sound(one.family, json.dumps(one.declared), one.length)
    found = audit(case.model(monkeypatch), length=one.length)
    assert case.judged(found) == "named", found.records
    first = found.records[0]
    assert first.where == f"serving mode {one.mode}"
    assert one.said in first.message or any(one.said in record.message for record in found.records)


def test_states_of_convolutions_follow_their_rows_in_beam_search(monkeypatch):
    model = Exhibit("sound", "", "zaya", of("501")).sound()

    def verdict():
        return {one.mode: one.verdict for one in audit(model, length=LENGTH).serving_modes}["beam search"]

    assert verdict() == "matches"
    monkeypatch.setattr(Cache, "reorder_cache", lambda self, order: None)
    assert verdict() == "differs"


def test_what_differs_without_padding_is_not_told_again_behind_padding(monkeypatch):
    case = Exhibit("scale", "", "smollm3", of("501"), attending(quarter_of_single_tokens), layers=None)
    modes = {record.where for record in audit(case.model(monkeypatch), length=LENGTH).records}
    apart = ("cached decoding", "static cache", "chunked prefill", "one token after 94")
    assert modes == {f"serving mode {mode}" for mode in apart}


def test_an_argument_that_the_function_does_not_read_is_no_finding(monkeypatch):
    """Plain attention of gpt-oss takes its sinks from the module."""
    changed = options(lambda given: {"s_aux": given["s_aux"] + 1})
    assert audit(Exhibit("s_aux", "", "gpt_oss", of("406"), changed).model(monkeypatch), length=LENGTH).ok


@pytest.mark.parametrize("declared", [{"floor_scale": 1}, {"attn_scale": 0.0}, {"floor_scale": 2}])
def test_temperatures_of_the_library_are_as_declared(declared):
    assert audit(
        Exhibit("sound", "", "llama4_text", of("403"), declared=COOL | declared).sound(), length=LENGTH
    ).ok


def test_the_closing_line_says_what_one_token_behind_a_long_cache_shows():
    said = [closing(audit(Exhibit("sound", "", one, of("501")).sound(), length=LENGTH)) for one in FEW]
    assert "One token after 94 others sees all keys that it is given, and its query is that of " in said[0]
    assert "One token after 94 others sees all keys that it is given. Not checked" in said[1]
    assert not any("one token after" in one for one in said)


BESIDE = {
    "num_beams": 4,
    "guidance_scale": 1.5,
    "prompt_lookup_num_tokens": 3,
    "assistant_early_exit": 1,
    "prefill_chunk_size": 7,
    "repetition_penalty": 2.0,
    "cache_implementation": "static",
}


@pytest.mark.sampled
@pytest.mark.parametrize("field", BESIDE)
def test_another_way_to_choose_tokens_changes_no_verdict(field, monkeypatch):
    model = Exhibit("sound", "", "llama", of("501")).sound()
    plain = audit(model, length=LENGTH)
    own = model.generation_config
    setattr(own, field, BESIDE[field])
    found = audit(model, length=LENGTH)
    assert found.serving_modes == plain.serving_modes
    assert model.generation_config is own


def test_exchanged_values_are_found_where_the_checkpoint_asks_for_beams(monkeypatch):
    one = next(one for one in FAULTS.values() if one.mode == "static cache")
    case = Exhibit("beams", "", one.family, of(one.code), one.inject, dict(one.declared), layers=None)
    model = case.model(monkeypatch)
    model.generation_config.num_beams = 4
    assert "serving mode static cache" in {record.where for record in audit(model, length=one.length).records}
