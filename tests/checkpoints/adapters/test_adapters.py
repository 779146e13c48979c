"""Loading checkpoints, and reading what attention kernels receive."""

import json
import sys

import pytest
import torch
import transformers
from tests.checkpoints.audit.families import CHANGED, FAMILIES, SIZES, build

from spectrope.checkpoints.ablation.subject import CheckpointSubject
from spectrope.checkpoints.adapters import (
    Inputs,
    block_of,
    declared_config,
    drawn_weights,
    evaluating,
    layer_name,
    open_model,
    recorded,
)
from spectrope.checkpoints.adapters.call import split_mask
from spectrope.checkpoints.adapters.interface import RECORDER, uses_interface
from spectrope.checkpoints.audit import audit
from spectrope.core.errors import ConfigError, UnsupportedError


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = tmp_path_factory.mktemp("llama")
    FAMILIES["llama-default"]().save_pretrained(folder)
    return folder


def test_a_folder_opens_as_the_class_it_names(checkpoint):
    model = open_model(checkpoint)
    assert isinstance(model, transformers.LlamaForCausalLM)
    assert not model.training
    torch.testing.assert_close(model.state_dict(), FAMILIES["llama-default"]().state_dict())
    assert open_model(str(checkpoint), dtype="bfloat16").dtype is torch.bfloat16


def test_pickled_weights_are_refused_unless_asked_for(checkpoint, tmp_path):
    (tmp_path / "config.json").write_bytes((checkpoint / "config.json").read_bytes())
    torch.save(FAMILIES["llama-default"]().state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(
        UnsupportedError, match=r"only pickled weights \(pytorch_model.bin\).*allow_pickle=True"
    ):
        open_model(tmp_path)
    assert isinstance(open_model(tmp_path, allow_pickle=True), transformers.LlamaForCausalLM)


def test_folders_that_are_no_checkpoints_are_refused(checkpoint, tmp_path):
    with pytest.raises(ConfigError, match=r"holds no config\.json"):
        open_model(tmp_path)
    (tmp_path / "config.json").write_bytes((checkpoint / "config.json").read_bytes())
    with pytest.raises(ConfigError, match="holds no weights"):
        open_model(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"")
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ConfigError, match="cannot be loaded: It looks like the config file"):
        open_model(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "unheard-of"}')
    with pytest.raises(
        ConfigError, match="cannot be loaded: The checkpoint you are trying to load has model type"
    ):
        open_model(tmp_path)


@pytest.fixture
def broken(checkpoint, tmp_path):
    """A copy of the checkpoint to be broken."""
    for file in checkpoint.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    return tmp_path


@pytest.mark.parametrize(("layers", "cut"), [(None, 2000), (None, -1), (slice(0, 1), -1)])
def test_weights_that_end_too_early_are_refused(broken, layers, cut):
    path = broken / "model.safetensors"
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(
        ConfigError, match="cannot be loaded: SafetensorError: Error while deserializing header"
    ):
        open_model(broken, layers=layers)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("num_attention_heads", 0, "num_attention_heads must be a positive whole number; got 0"),
        ("num_attention_heads", "four", "cannot be loaded: Field 'num_attention_heads' expected int"),
        ("rope_parameters", {"rope_type": "linear"}, "rope_type .linear. must have factor; got none"),
        (
            "hidden_size",
            128,
            r"cannot be loaded: \S+ has shape \d+( x \d+)?, but its config.json requires \d+",
        ),
        ("num_attention_heads", 5, r"cannot be loaded: The hidden size \(64\) is not a multiple"),
        ("num_hidden_layers", 3, r"lacks 9 weights \(model.layers.2.*would be random"),
    ],
)
def test_a_configuration_that_does_not_fit_is_refused(broken, field, value, message):
    config = json.loads((broken / "config.json").read_text())
    (broken / "config.json").write_text(json.dumps(config | {field: value}))
    with pytest.raises(ConfigError, match=message):
        open_model(broken)


def save_without(folder, model, *left_out):
    """A checkpoint that lacks the weights whose names begin so."""
    state = {name: value for name, value in model.state_dict().items() if not name.startswith(left_out)}
    model.save_pretrained(folder, state_dict=state)


@pytest.mark.parametrize(
    ("family", "lacking"),
    [
        ("gpt2", "transformer.wpe.weight"),
        ("gpt2", "transformer.ln_f.bias"),
        ("llama-default", "model.embed_tokens.weight"),
        ("bert", "bert.embeddings.LayerNorm.weight"),
        ("t5", "encoder.final_layer_norm.weight"),
        ("bart", "model.decoder.embed_positions.weight"),
    ],
)
def test_weights_outside_the_layers_are_not_drawn(family, lacking, tmp_path):
    save_without(tmp_path, FAMILIES[family](), lacking)
    with pytest.raises(ConfigError, match=f"lacks 1 weights \\({lacking}\\), which would be random"):
        open_model(tmp_path)


def test_a_head_may_be_lacking_where_it_is_not_used(tmp_path):
    save_without(tmp_path, FAMILIES["llama-default"](), "lm_head")
    model = open_model(tmp_path)
    assert drawn_weights(model) == drawn_weights(open_model(tmp_path, layers=slice(0, 1)))
    assert audit(model, length=16).ok
    with pytest.raises(
        UnsupportedError, match=r"lacks lm_head\.weight, so that it would predict by a random head"
    ):
        CheckpointSubject.of(model)


@pytest.mark.parametrize("family", ["gpt2", "t5"])
def test_tied_weights_are_not_lacking(family, tmp_path):
    FAMILIES[family]().save_pretrained(tmp_path)
    model = open_model(tmp_path)
    assert drawn_weights(model) == ()
    CheckpointSubject.of(model)


def test_a_pooler_may_be_lacking(tmp_path):
    save_without(tmp_path, build("Bert", "Model", **SIZES), "pooler")
    assert drawn_weights(open_model(tmp_path)) == ("pooler.dense.bias", "pooler.dense.weight")


@pytest.mark.parametrize("layers", [None, slice(1, 2)])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_refused(layers, value, tmp_path):
    model = FAMILIES["llama-default"]()
    model.model.layers[1].self_attn.q_proj.weight.data[3, 5] = value
    model.save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match=r"holds values in .*self_attn\.q_proj\.weight that are not finite"):
        open_model(tmp_path, layers=layers)


def test_a_name_that_is_too_long_is_no_checkpoint():
    with pytest.raises(ConfigError, match=r"is neither a folder nor the id of a model: File name too long\."):
        open_model("x" * 300)


def test_a_file_is_no_checkpoint(checkpoint):
    with pytest.raises(ConfigError, match=r"config.json is a file; give the folder"):
        open_model(checkpoint / "config.json")


def test_code_of_a_checkpoint_does_not_run(checkpoint, tmp_path):
    (tmp_path / "mine.py").write_text("raise SystemExit('ran')")
    own = {"AutoConfig": "mine.MineConfig", "AutoModelForCausalLM": "mine.Mine"}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "mine", "auto_map": own}))
    (tmp_path / "model.safetensors").write_bytes((checkpoint / "model.safetensors").read_bytes())
    with pytest.raises(
        UnsupportedError, match="needs code that comes with it, which is not executed by default"
    ):
        open_model(tmp_path)


def test_an_id_that_is_not_in_the_cache_needs_leave_to_download():
    with pytest.raises(ConfigError, match="nobody/nothing is neither a folder nor in the local cache"):
        open_model("nobody/nothing")


def test_without_transformers_the_way_out_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(UnsupportedError, match=r"pip install 'spectrope\[hf\]'"):
        open_model("anything")


@pytest.mark.parametrize(
    ("module", "layer", "block"),
    [
        ("model.layers.3.self_attn", ("", 3), "model.layers.3"),
        ("encoder.block.1.layer.0.SelfAttention", ("encoder", 1), "encoder.block.1"),
        ("model.decoder.layers.10.self_attn", ("decoder", 10), "model.decoder.layers.10"),
        ("attention", ("", 0), "attention"),
    ],
)
def test_names_of_modules_say_where_they_lie(module, layer, block):
    assert layer_name(module) == layer
    assert block_of(module) == block


def test_the_file_is_read_beside_the_library_s_configuration(checkpoint):
    assert declared_config(open_model(checkpoint))["file"]["rope_parameters"]["rope_theta"] == 5e5
    assert declared_config(FAMILIES["llama-default"]())["file"] == {}
    renamed = FAMILIES["llama-default"]()
    renamed.config._name_or_path = "nobody/nothing"
    assert declared_config(renamed)["file"] == {}


@pytest.mark.parametrize("family", ["llama-default", "gptj", "bloom", "mpt", "falcon-rope", "capped"])
def test_calls_hold_what_makes_up_the_attention_pattern(family):
    """Softmax of the recorded logits is the pattern that the library itself returns."""
    model = (FAMILIES | CHANGED)[family]()
    ids = torch.randint(5, 60, (2, 12), generator=torch.Generator().manual_seed(1))
    calls = []
    with torch.no_grad(), recorded(model, calls.append):
        model(ids)
    assert uses_interface(model) == (family in ("llama-default", "capped"))
    pattern = calls[0].unmasked().masked_fill(~calls[0].allowed, -torch.inf).softmax(-1)
    model.config._attn_implementation = "eager"
    with torch.no_grad():
        own = model(ids, output_attentions=True).attentions[0]
    torch.testing.assert_close(pattern, own, atol=1e-5, rtol=1e-4)


def test_modules_come_back_in_the_mode_that_each_was_in():
    model = torch.nn.Sequential(torch.nn.Dropout(), torch.nn.Sequential(torch.nn.Dropout()))
    model[1].eval()
    before = [module.training for module in model.modules()]
    with evaluating(model):
        assert not any(module.training for module in model.modules())
    assert [module.training for module in model.modules()] == before


def test_the_recorder_works_only_while_recording():
    model = FAMILIES["llama-default"]()
    with recorded(model, lambda _: None):
        pass
    model.config._attn_implementation = RECORDER
    with pytest.raises(RuntimeError, match="called outside `recorded`"):
        model(torch.tensor([[5, 6]]))


class Cached(torch.nn.Module):
    """The classic mistake of a cache: torch's causal mask for later queries begins at the first key."""

    def forward(self, q, k):
        return torch.nn.functional.scaled_dot_product_attention(q, k, k, is_causal=True)


@pytest.mark.parametrize("n", [1, 2, 5])
def test_torch_s_causal_mask_is_recorded_as_it_is_applied_to_fewer_queries_than_keys(n):
    q, k = torch.randn(1, 2, n, 4), torch.randn(1, 2, 5, 4)
    calls, model = [], Cached()
    with recorded(model, calls.append):
        out = model(q, k)
    pattern = calls[0].unmasked().masked_fill(~calls[0].allowed, -torch.inf).softmax(-1)
    torch.testing.assert_close(pattern @ k, out)


def test_masks_are_split_into_what_is_allowed_and_what_is_added():
    q = k = torch.zeros(1, 2, 3, 4)
    allowed, bias = split_mask(None, q, k, causal=True)
    assert allowed[0, 0].equal(torch.ones(3, 3).tril().bool())
    assert bias is None
    assert split_mask(None, q, k, causal=False)[0].all()
    assert split_mask(None, q[:, :, :2], k, causal=True)[0][0, 0].equal(torch.ones(2, 3).tril().bool())
    assert split_mask(torch.eye(3).bool(), q, k, causal=True)[0][0, 0].equal(torch.eye(3).bool())
    added = torch.zeros(1, 1, 3, 3).masked_fill(torch.eye(3).bool(), torch.finfo(torch.float32).min)
    allowed, bias = split_mask(added, q, k, causal=False)
    assert (~allowed[0, 0]).equal(torch.eye(3).bool())
    assert bias is None
    allowed, bias = split_mask(added + 0.5 * torch.ones(3).diag(1)[:3, :3], q, k, causal=False)
    assert bias is not None
    assert bias[0, 0, 0, 1] == 0.5
    assert bias[0, 0, 0, 0] == 0


def test_inputs_fit_the_model():
    given = Inputs(2, 5).of(FAMILIES["t5"](), torch.ones(2, 5))
    assert given.keys() == {
        "input_ids",
        "attention_mask",
        "decoder_input_ids",
        "decoder_attention_mask",
        "use_cache",
    }
    assert Inputs(1, 3).of(FAMILIES["llama-default"]())["input_ids"].shape == (1, 3)
