"""Whatever changed is reported everywhere, and what a lock lost or never held is said."""

from dataclasses import replace
from xml.etree import ElementTree

import pytest
import torch
from tests.checkpoints.audit.families import FAMILIES, ROPES, llama
from transformers import BloomConfig, BloomForCausalLM, WhisperConfig, WhisperForConditionalGeneration

import spectrope as sp
from spectrope.checkpoints.lock import check, lock, read_lock, write_lock
from spectrope.checkpoints.lock.lacking import NOT_HELD
from spectrope.checkpoints.lock.opening import checked
from spectrope.checkpoints.lock.pytest_plugin import _assert_encoding
from spectrope.checkpoints.lock.records import LockedServingMode
from spectrope.checkpoints.lock.reports import junit, junit_of_failure, sarif
from spectrope.core import ConfigError

DIFFERS = LockedServingMode(path="new mode", verdict="differs", findings=("kernel of layer 0: off by 0.1",))


def locked(model, **options):
    return lock(model, length=32, watch=sp.unwatched, **{"serving_modes": False, **options})


@pytest.fixture(scope="module")
def model():
    return llama(rope_parameters=ROPES["default"])


@pytest.fixture(scope="module")
def held(model):
    return locked(model)


@pytest.fixture(scope="module")
def served(model):
    return locked(model, serving_modes=True)


def cases(result):
    root = ElementTree.fromstring(junit(result).encode())
    return root, {one.get("name"): one for one in root.iter("testcase")}


def test_a_move_in_no_place_of_the_lock_has_a_case_and_a_row(held):
    result = check(held, replace(held, unread=("model.extra.attn",)))
    root, found = cases(result)
    assert root.get("failures") == "1"
    assert found["model.extra.attn"].find("failure").get("type") == "SPE702"
    assert ("model.extra.attn", "changed") in result.to_frame().select("where", "verdict").rows()


def whisper():
    torch.manual_seed(0)
    sizes = {"vocab_size": 64, "d_model": 64, "max_source_positions": 64, "num_mel_bins": 8}
    for side in ("encoder", "decoder"):
        sizes |= {f"{side}_layers": 1, f"{side}_attention_heads": 4, f"{side}_ffn_dim": 64}
    ids = {"decoder_start_token_id": 1, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    silent = {"suppress_tokens": None, "begin_suppress_tokens": None}
    return WhisperForConditionalGeneration(WhisperConfig(**sizes, **ids, **silent)).eval()


def test_a_lock_of_a_part_is_compared_with_the_part_of_a_whole_model():
    model = whisper()
    held = lock(model, part="model.encoder", watch=sp.unwatched)
    _assert_encoding(model, held)
    _assert_encoding(model.model.encoder, held)
    assert not hasattr(model.model.encoder, "part_name")


def added(model, size):
    """The model with vectors of no table added before its first layer."""
    vectors = size * torch.randn(64, 64, generator=torch.Generator().manual_seed(0))

    def hook(_, args):
        return args[0] + vectors[: args[0].shape[1]], *args[1:]

    return model.model.layers[0].register_forward_pre_hook(hook)


def test_a_term_without_a_table_that_comes_or_goes_is_a_change(model, held):
    handle = added(model, 0.3)
    try:
        after = locked(model)
    finally:
        handle.remove()
    for pair, then in (
        ((held, after), "none locked, vectors of norm"),
        ((after, held), "of no table locked"),
    ):
        [move] = [one for one in check(*pair).moves if one.where == "embeddings of layers.0"]
        assert move.what == "absolute term"
        assert then in str(move)


@pytest.mark.parametrize("kind", ["layers", "embeddings", "paths"])
def test_a_lock_that_lost_records_is_incomplete(kind, served, tmp_path):
    lost = read_lock(write_lock(replace(served, **{kind: ()}), tmp_path / "lock"))
    result = check(lost, served)
    assert result.ok
    assert not result.whole
    assert {one.why for one in result.uncompared} == {NOT_HELD}
    assert set(result.to_frame()["verdict"]) == {"as locked", "not in the lock"}
    root, _ = cases(result)
    assert int(root.get("skipped")) == len(result.uncompared) == len(getattr(served, kind))
    assert any(result.uncompared[0].where in one for one in result.lacking)


def test_a_lock_that_lost_serving_modes_is_measured_with_them(served, model):
    result = checked(replace(served, paths=()), model, sp.unwatched)
    assert {one.where for one in result.uncompared} == {f"serving mode {one.path}" for one in served.paths}


def test_a_lock_that_lost_a_layer_is_incomplete_but_not_for_one_that_it_could_not_read(held):
    lost = replace(held, layers=held.layers[:1])
    assert [one.where for one in check(lost, held).uncompared] == ["layer 1"]
    unread = replace(lost, unread=(held.layers[1].module,))
    assert check(unread, held).whole


def test_serving_modes_left_out_on_purpose_are_listed_and_nothing_else(held, model):
    result = checked(held, model, sp.unwatched)
    assert (result.ok, result.whole, result.lacking) == (True, True, ())
    assert "serving modes, which the lock was made without" in result.uncovered
    earlier = checked(replace(held, kinds=()), model, sp.unwatched)
    assert (earlier.ok, earlier.whole, earlier.uncovered) == (True, True, result.uncovered)


def test_a_serving_mode_that_exists_only_now_is_listed_and_incomplete_if_it_differs(served):
    for kinds in (served.kinds, ()):
        before = replace(served, kinds=kinds)
        now = replace(served, paths=(*served.paths, replace(DIFFERS, verdict="matches")))
        assert check(before, now).whole
        assert "serving mode new mode" in "".join(check(before, now).lacking)
        now = replace(served, paths=(*served.paths, DIFFERS))
        assert [one.where for one in check(before, now).uncompared] == ["serving mode new mode"]


def test_an_accepted_finding_of_a_serving_mode_may_have_other_values(held):
    def with_findings(*findings):
        return replace(held, paths=(replace(DIFFERS, findings=findings),))

    before = with_findings("kernel of layer 0: off by 0.1234")
    assert check(before, with_findings("kernel of layer 0: off by 0.1235")).ok
    after = with_findings("kernel of layer 0: off by 0.2", *(f"mask of layer {n}: another" for n in range(9)))
    assert [one.now for one in check(before, after).moves] == ["mask of layer 0: another"]


def test_names_with_control_characters_make_no_broken_report(held, tmp_path):
    named = replace(held, model="a\x01\x1b[2J\ud800\ufffe", unread=())
    root, found = cases(check(named, replace(held, unread=("model.\x02",))))
    assert root.get("failures") == "1"
    assert all(one.get("classname").startswith("a\N{REPLACEMENT CHARACTER}") for one in found.values())
    ElementTree.fromstring(junit_of_failure("no\x00thing", ConfigError))
    assert "model.extra" in sarif(check(held, replace(held, unread=("model.extra",))), write(held, tmp_path))


def write(held, folder):
    return write_lock(held, folder / "spectrope.lock")


def test_other_numbers_of_biased_heads_are_a_change():
    def bloom(heads):
        return BloomForCausalLM(BloomConfig(vocab_size=64, hidden_size=64, n_layer=1, n_head=heads)).eval()

    moves = check(locked(bloom(4)), locked(bloom(8))).moves
    assert "slopes: 4 heads locked, 8 heads now" in "".join(map(str, moves))


@pytest.mark.parametrize("text", ["x = " + "[" * 20000 + "]" * 20000, "x = " + "1" * 6000])
def test_what_toml_cannot_hold_is_refused_in_one_line(text, tmp_path):
    (tmp_path / "lock").write_text(f"format = 1\n{text}\n")
    with pytest.raises(ConfigError, match="is not a lock: ") as caught:
        read_lock(tmp_path / "lock")
    assert len(str(caught.value)) < 300
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("growth", ["[1.0]", "[0.0, 0.0, 0.0]"])
def test_factors_that_cannot_be_are_refused(growth, held, tmp_path):
    path = write(held, tmp_path)
    text = path.read_text()
    start = text.index("growth = [")
    path.write_text(text[:start] + f"growth = {growth}" + text[text.index("]", start) + 1 :])
    with pytest.raises(ConfigError, match="must be with 3 factors above 0 in `growth`"):
        read_lock(path)


def test_a_rotation_of_no_coordinates_is_refused(held):
    layer = held.layers[0]
    turning = replace(layer.encoding.turning, width=0, frequencies=(), errors=())
    with pytest.raises(ConfigError, match="of at least 2 coordinates"):
        replace(layer, encoding=replace(layer.encoding, turning=turning))


def test_a_wider_head_is_said_in_coordinates(held):
    layer = held.layers[0]
    wide = replace(layer.encoding.turning, width=32, head_dim=32, frequencies=(1.0,) * 16, errors=(0.0,) * 16)
    after = replace(held, layers=(replace(layer, encoding=replace(layer.encoding, turning=wide)),))
    told = "".join(map(str, check(held, after).moves))
    assert "rotated fraction: coordinates 0 to 15 locked, coordinates 0 to 31 now" in told


def test_tables_of_another_model_are_read(tmp_path):
    held = locked(FAMILIES["gpt2"]())
    assert held.embeddings[0].learned
    assert not locked(llama()).embeddings[0].learned
