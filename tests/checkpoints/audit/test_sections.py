"""Tokens of pictures under M-RoPE: pairs turn with the declared axis, or the audit says with which."""

import json

import pytest
import torch
from tests.checkpoints.audit.injections import in_head, placed, rotating, table_of_texts
from tests.checkpoints.audit.museum_faults import dividing
from tests.checkpoints.audit.test_vision import qwen2_vl
from tests.checkpoints.audit.zoo import Variant, build, families, in_precision, small_config
from transformers import Qwen2VLForConditionalGeneration

from spectrope.checkpoints.audit import audit
from spectrope.checkpoints.audit.sections import FORMS, chosen_places, in_turn, in_words, time_last
from spectrope.checkpoints.audit.text import closing
from spectrope.core import unwatched
from spectrope.encodings import MRoPE

LENGTH = 48
READ = sorted(set(FORMS) & set(families()))
UNREAD = "tokens of pictures, whose time, height and width differ"


def model_of(family, dtype="float32"):
    return build(Variant(family, families()[family], dtype=dtype))


def found(model):
    return audit(model, length=LENGTH, serving_modes=False, watch=unwatched)


def only(result):
    """The one finding that all layers share."""
    assert [layer.verdict for layer in result.layers] == ["differs"] * len(result.layers)
    (text,) = {str(one) for layer in result.layers for one in layer.findings}
    return text


def test_there_are_families_of_each_form():
    assert {"qwen2_vl_text", "qwen3_vl_text", "glm4v_text", "cohere_compass_text", "qwen3_5_text"} <= set(
        READ
    )


@pytest.mark.sampled
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("family", READ)
def test_unmodified_models_turn_as_declared(family, dtype):
    result = found(model_of(family, dtype))
    assert all(layer.verdict == "matches" for layer in result.layers)
    assert UNREAD not in result.unexercised
    assert result.further == (UNREAD, "fewer tokens (36)")
    assert f"Further passes with {UNREAD}; fewer tokens (36) showed no difference either." in closing(result)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("family", ["qwen2_vl_text", "glm4v_text"])
def test_one_position_per_token_is_time_alone(family, dtype, monkeypatch):
    model = model_of(family, dtype)
    placed(lambda p: p[:1].expand(3, -1, -1))(model, monkeypatch)
    text = only(found(model))
    assert text.startswith("axes: pairs 0 to 3 with time, 4 to 5 with height, 6 to 7 with width declared")
    assert "pairs 0 to 7 with time effective" in text


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_exchanged_height_and_width_are_named(dtype, monkeypatch):
    model = model_of("qwen3_vl_text", dtype)
    placed(lambda p: p[[0, 2, 1]])(model, monkeypatch)
    assert "3 with time, 3 with width, 2 with height, in turn effective" in only(found(model))


def test_a_division_that_has_no_name_is_told_pair_by_pair(monkeypatch):
    model = model_of("qwen2_vl_text")
    dividing(lambda _: torch.tensor([0, 0, 1, 0, 1, 1, 2, 2]))(model, monkeypatch)
    text = only(found(model))
    assert "3 with time, 3 with height, 2 with width, mixed effective (1 of 8 pairs" in text
    assert "the first of them pair 2" in text


def test_divisions_that_read_alike_are_told_pair_by_pair(monkeypatch):
    model = build(Variant("qwen3_vl_text", families()["qwen3_vl_text"]))
    dividing(lambda _: torch.tensor([0, 1, 2, 0, 2, 1, 0, 1]))(model, monkeypatch)
    declared, _, effective = only(found(model)).partition(" declared, ")
    assert declared.endswith("3 with time, 4 with height, 5 with width, 6 with time, 7 with height")
    assert effective.startswith("pairs 0 with time, 1 with height, 2 with width, 3 with time, 4 with width")


@pytest.mark.parametrize("base", [1e4, 1e6])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_slow_pairs_are_followed_as_far_as_they_need(dtype, base, monkeypatch):
    rope = {"rope_type": "default", "rope_theta": base, "mrope_section": [5, 2, 1]}
    config = small_config("qwen2_vl_text")
    config.rope_parameters = rope
    model = in_precision(type(model_of("qwen2_vl_text"))(config).eval(), dtype)
    assert UNREAD not in " ".join(found(model).unexercised)
    placed(lambda p: p[[0, 2, 1]])(model, monkeypatch)
    assert "5 to 6 with width, 7 with height effective" in only(found(model))


def test_pairs_that_no_position_can_tell_are_counted(monkeypatch):
    config = small_config("qwen2_vl_text")
    config.rope_parameters = {
        "rope_type": "dynamic", "rope_theta": 1e6, "factor": 2.0, "mrope_section": [4, 2, 2],
    }  # fmt: skip
    model = in_precision(type(model_of("qwen2_vl_text"))(config).eval(), "bfloat16")
    (told,) = found(model).unexercised
    assert told.startswith(f"{UNREAD}, in ")
    assert told.endswith(" pairs that turn too slowly to be told")


@pytest.mark.parametrize("length", [2, 3, 5])
def test_models_of_few_positions_are_read(length):
    config = small_config("qwen2_vl_text")
    config.max_position_embeddings = length
    assert found(type(model_of("qwen2_vl_text"))(config).eval()).ok


def test_pruned_heads_and_pairs_say_nothing():
    model = model_of("qwen2_vl_text")
    projection = model.layers[0].self_attn.q_proj
    for rows in (slice(0, 16), [17, 25]):
        projection.weight.data[rows], projection.bias.data[rows] = 0.0, 0.0
    assert found(model).ok


def test_pairs_of_a_sum_of_axes_turn_in_another_way(monkeypatch):
    model = model_of("qwen2_vl_text")
    placed(lambda p: torch.stack([p[0], p[1] + p[2] - p[0], p[2]]))(model, monkeypatch)
    assert "4 to 5 in another way, 6 to 7 with width effective" in only(found(model))


def test_coordinates_of_one_pair_on_different_axes_are_no_rotation(monkeypatch):
    model = model_of("qwen2_vl_text")
    table = table_of_texts(model)
    monkeypatch.setattr(
        table, "recomposition_frequencies", lambda freq: torch.cat([freq[0], freq[1]], -1), raising=False
    )
    assert "coordinates of a pair turn with different ones effective" in only(found(model))


KEYS = (lambda right, wrong: (right[0], wrong[1]), {("axes of keys alone", None)})
HEAD = (lambda right, wrong: (in_head(right[0], 2, wrong[0]), right[1]), {("axes of queries of head 2", 2)})


@pytest.mark.parametrize(("change", "wanted"), [KEYS, HEAD], ids=["keys", "head 2"])
def test_one_side_and_one_head_of_a_layer_are_named(change, wanted, monkeypatch):
    model = model_of("qwen2_vl_text")
    table, tables = table_of_texts(model), []

    def rotate(own, q, k, c, s):
        return change(own(q, k, c, s), own(q, k, *tables[-1]))

    def of_time(_, args, given, _out):
        ids = given.get("position_ids", args[-1])
        tables.append(table.forward(args[0], ids[:1].expand(3, -1, -1)))

    table.register_forward_hook(of_time, with_kwargs=True)
    rotating(rotate, layers=(1,))(model, monkeypatch)
    sound, differing = found(model).layers
    assert (sound.verdict, differing.verdict) == ("matches", "differs")
    assert {(one.what, one.head) for one in differing.findings} == wanted
    assert {one.code for one in differing.findings} == {"SPE115"}


def test_a_whole_model_with_a_tower_is_read_and_its_old_configuration_too(tmp_path, monkeypatch):
    model = qwen2_vl()
    assert found(model).ok
    model.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    parameters = config["text_config"].pop("rope_parameters")
    config["text_config"] |= {
        "rope_theta": parameters["rope_theta"],
        "rope_scaling": {"type": "mrope", "mrope_section": parameters["mrope_section"]},
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    old = audit(tmp_path, length=LENGTH, watch=unwatched)
    assert old.ok
    assert UNREAD not in old.unexercised
    again = Qwen2VLForConditionalGeneration.from_pretrained(tmp_path).eval()
    placed(lambda p: p[:1].expand(3, -1, -1))(again, monkeypatch)
    assert "with time effective" in only(found(again))


@pytest.mark.parametrize("sections", [[2, 2, 2, 2], [3, 2, 2]])
def test_sections_that_do_not_fit_the_pairs_are_named_as_not_read(sections):
    model = model_of("qwen3_vl_text")
    model.config.rope_parameters = model.config.rope_parameters | {"mrope_section": sections}
    result = found(model)
    assert [layer.verdict for layer in result.layers] == ["matches", "matches"]
    assert UNREAD in result.unexercised


def test_pairs_whose_coordinates_part_are_named_as_not_read():
    result = found(model_of("hunyuan_vl_text"))
    assert (result.further, result.unexercised) == (("fewer tokens (36)",), (UNREAD,))
    assert "Further passes with fewer tokens (36) showed" in closing(result)


def test_places_lie_on_every_axis_and_off_them_below_the_length():
    for reach in (16, 64, 32768):
        places = chosen_places(reach)
        assert places.max() == reach - 1
        assert places[:, 0].tolist() == [0, 0, 0]
        assert all(((places[a] > 0) & (places.sum(0) == places[a])).sum() >= 3 for a in range(3))
        assert ((places > 0).sum(0) > 1).any()


def test_forms_agree_with_our_encoding_and_by_hand():
    config = MRoPE.Config(head_dim=16, height=0.25, width=0.25, layout="interleaved")
    directions = MRoPE(config).directions()[0]
    assert directions.argmax(-1).tolist() == in_turn((4, 2, 2)).tolist()
    assert time_last((2, 2, 3)).tolist() == [1, 2, 1, 2, 0, 0, 0]
    assert in_words(torch.tensor([0, 1, 1, 3])) == "pairs 0 with time, 1 to 2 with height, 3 in another way"
