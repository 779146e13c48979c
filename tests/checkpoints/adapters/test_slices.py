"""Slices of a checkpoint: the chosen layers as they are in the whole, nothing read of the others."""

import json

import pytest
import torch
import transformers
from tests.checkpoints.audit.families import FAMILIES, T5, build
from tests.checkpoints.audit.test_vision import qwen2_vl

from spectrope.checkpoints.adapters import declared_config, open_model, parse_layers
from spectrope.checkpoints.adapters.slices import Chosen, chosen_layers, read_layers
from spectrope.checkpoints.adapters.towers import towers
from spectrope.checkpoints.audit import audit
from spectrope.core import unwatched
from spectrope.core.errors import ConfigError, UnsupportedError

ONE_STACK = (
    "gpt2",
    "gptj",
    "llama-yarn",
    "bert",
    "bloom",
    "mpt",
    "smollm3",
    "gemma3",
    "llama4",
    "deepseek_v3",
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0:4", slice(0, 4)),
        (":2", slice(None, 2)),
        ("-2:", slice(-2, None)),
        ("7", slice(7, 8)),
        ("-1", slice(-1, None)),
    ],
)
def test_layers_are_named_as_python_slices(text, expected):
    assert parse_layers(text) == expected


@pytest.mark.parametrize("text", ["", "a:b", "0:4:2", "1,2"])
def test_other_names_of_layers_are_refused(text):
    with pytest.raises(ConfigError, match=r"layers are given as FIRST:LAST\+1, such as 0:4"):
        parse_layers(text)


@pytest.mark.sampled
@pytest.mark.parametrize("family", ONE_STACK)
def test_a_slice_is_audited_as_in_the_whole(family, tmp_path):
    FAMILIES[family]().save_pretrained(tmp_path)
    whole = audit(open_model(tmp_path), length=64)
    part = audit(open_model(tmp_path, layers=slice(1, None)), length=64)
    assert part.layers == whole.layers[1:]
    assert part.layers[0].layer == 1
    assert part.ok


def test_files_of_other_layers_need_not_be_there(tmp_path):
    FAMILIES["smollm3"]().save_pretrained(tmp_path, max_shard_size="50KB")
    placed = json.loads((tmp_path / "model.safetensors.index.json").read_text())["weight_map"]
    wanted = {file for name, file in placed.items() if ".layers." not in name or ".layers.2." in name}
    for file in set(placed.values()) - wanted:
        (tmp_path / file).unlink()
    assert len(wanted) < len(set(placed.values()))
    assert audit(open_model(tmp_path, layers=slice(2, 3)), length=32).ok
    with pytest.raises(ConfigError, match=r"lacks model-.*\.safetensors, which holds"):
        open_model(tmp_path, layers=slice(1, 2))


def test_weights_are_those_of_the_layer(tmp_path):
    model = FAMILIES["smollm3"]()
    model.save_pretrained(tmp_path)
    part = open_model(tmp_path, layers=slice(2, 3)).state_dict()
    for name, value in part.items():
        torch.testing.assert_close(value, model.state_dict()[name], rtol=0, atol=0)
    assert {name.split(".")[2] for name in part if ".layers." in name} == {"2"}


def test_nothing_of_other_layers_is_read(tmp_path):
    FAMILIES["smollm3"]().save_pretrained(tmp_path)
    names = read_layers(str(tmp_path), Chosen({"": range(1, 3)}, {}))
    assert {name.split(".")[2] for name in names if ".layers." in name} == {"0", "1"}


def test_the_declaration_is_that_of_the_whole(tmp_path):
    FAMILIES["smollm3"]().save_pretrained(tmp_path)
    declared = declared_config(open_model(tmp_path, layers=slice(2, 3)))
    assert declared["library"]["num_hidden_layers"] == 4
    assert declared["library"]["no_rope_layers"] == [1, 1, 1, 0]


def test_layers_that_are_not_there_are_refused(tmp_path):
    FAMILIES["llama-default"]().save_pretrained(tmp_path / "llama")
    with pytest.raises(ConfigError, match="layers must take at least one of 0 to 1; got 2:4"):
        open_model(tmp_path / "llama", layers=slice(2, 4))
    t5 = FAMILIES["t5"]().config
    with pytest.raises(ConfigError, match="layers must take at least one of 0 to 1; got 2:4"):
        chosen_layers(t5, slice(2, 4))
    t5.num_decoder_layers = None
    with pytest.raises(UnsupportedError, match="configuration of 't5' counts no layers of its decoder"):
        chosen_layers(t5, slice(0, 1))


@pytest.mark.parametrize("family", ["t5", "bart"])
def test_a_slice_of_two_stacks_is_audited_as_in_the_whole(family, tmp_path):
    FAMILIES[family]().save_pretrained(tmp_path)
    whole = audit(open_model(tmp_path), length=64)
    part = audit(open_model(tmp_path, layers=slice(1, None)), length=64)
    assert [layer.name for layer in part.layers] == ["encoder 1", "decoder 1"]
    assert part.layers == (whole.layers[1], whole.layers[3])
    assert part.ok


def test_a_table_that_every_layer_has_is_not_lent(tmp_path):
    """Unlike T5, UMT5 has a table of biases in each layer."""
    model = build("UMT5", "ForConditionalGeneration", **T5)
    model.save_pretrained(tmp_path)
    part = open_model(tmp_path, layers=slice(1, None)).state_dict()
    name = "encoder.block.1.layer.0.SelfAttention.relative_attention_bias.weight"
    torch.testing.assert_close(part[name], model.state_dict()[name], rtol=0, atol=0)


def test_a_layer_that_lacks_its_weights_is_refused(tmp_path):
    model = FAMILIES["llama-default"]()
    state = {
        name: value for name, value in model.state_dict().items() if "layers.1.self_attn.k_proj" not in name
    }
    model.save_pretrained(tmp_path, state_dict=state)
    with pytest.raises(
        UnsupportedError, match=r"these layers of .* need weights .*k_proj.*; take layers from 0 on"
    ):
        open_model(tmp_path, layers=slice(1, 2))


def test_slices_are_of_safetensors(tmp_path):
    model = FAMILIES["llama-default"]()
    model.config.save_pretrained(tmp_path)
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(
        UnsupportedError, match="has no safetensors, the only format of which layers are read"
    ):
        open_model(tmp_path, allow_pickle=True, layers=slice(0, 1))


def llava():
    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    text = sizes | {"vocab_size": 64, "num_key_value_heads": 2, "max_position_embeddings": 128}
    tower = sizes | {"num_hidden_layers": 3, "image_size": 16, "patch_size": 4}
    config = transformers.LlavaConfig(
        text_config=text | {"model_type": "llama"},
        vision_config=tower | {"model_type": "clip_vision_model"},
        image_token_index=60,
    )
    return transformers.LlavaForConditionalGeneration(config).eval()


@pytest.mark.parametrize(("build", "read"), [(llava, 0), (qwen2_vl, 2)])
@pytest.mark.parametrize("chosen", [slice(0, 1), slice(1, 2)])
def test_parts_for_pictures_keep_all_their_layers(build, read, chosen, tmp_path):
    whole = build()
    whole.save_pretrained(tmp_path)
    model = open_model(tmp_path, layers=chosen)
    weights = dict(whole.named_parameters())
    held = dict(model.named_parameters())
    first = whole.model.language_model.layers[chosen.start].self_attn.q_proj.weight
    assert torch.equal(
        model.model.language_model.layers.get_submodule(str(chosen.start)).self_attn.q_proj.weight, first
    )
    of_tower = [name for name in weights if "visual" in name or "vision_tower" in name]
    assert of_tower
    assert all(torch.equal(held[name], weights[name]) for name in of_tower)
    found = audit(model, length=32, watch=unwatched)
    assert found.ok
    assert [one.layer for one in found.layers] == [chosen.start]
    assert len(found.vision) == read


@pytest.mark.parametrize("layers", [None, slice(1, 2)])
def test_a_tower_is_declared_by_its_part_of_the_file(layers, tmp_path):
    qwen2_vl().save_pretrained(tmp_path)
    (tower,) = towers(open_model(tmp_path, layers=layers))
    assert (
        tower.declared["file"]["model_type"] == tower.declared["library"]["model_type"] == "qwen2_vl_vision"
    )
