"""Files of a checkpoint that are refused before anything is loaded."""

import json
import re
import shutil

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from tests.checkpoints.audit.families import FAMILIES

from spectrope.checkpoints.adapters import open_model
from spectrope.checkpoints.audit import audit
from spectrope.cli import main
from spectrope.core.errors import ConfigError, UnsupportedError


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sound") / "checkpoint"
    FAMILIES["llama-default"]().save_pretrained(folder)
    return folder


@pytest.fixture
def folder(sound, tmp_path):
    """A copy to be changed."""
    return shutil.copytree(sound, tmp_path / "checkpoint")


def declare(folder, **fields):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def index(folder, file, name="model.safetensors.index.json"):
    """The index of weights that lie in another file; a decoy keeps the folder from looking pickled."""
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    save_file({"x": torch.zeros(1)}, folder / "decoy.safetensors")
    (folder / name).write_text(json.dumps({"metadata": {}, "weight_map": dict.fromkeys(weights, file)}))
    return weights


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"rope_parameters": {"rope_type": "zzz", "rope_theta": 1e4}},
            r"rope_type 'zzz' is not known .*known: def",
        ),
        (
            {"rope_parameters": {"rope_type": "su", "rope_theta": 1e4}},
            "'su' is not known .*called 'longrope' now",
        ),
        (
            {"rope_parameters": {"rope_type": "mrope", "rope_theta": 1e4}},
            "'mrope' is not known .*mrope_section now",
        ),
        *(
            (
                {"rope_scaling": {"type": "mrope", "mrope_section": wrong}},
                rf"rope_scaling.mrope_section must list .* in whole numbers; got {re.escape(repr(wrong))}\.",
            )
            for wrong in (5, "422", [], ["4", "2", "2"], [4, 2, 2.0], [4, -2, 6])
        ),
        ({"rope_theta": [1e4, 1e4]}, r"rope_theta must be one positive number; got \[10000.0, 10000.0\]"),
        (
            {"rope_parameters": {"rope_type": "default", "rope_theta": 0}},
            "rope_theta must be a positive number; got 0, with which no frequency is finite",
        ),
        (
            {"rope_parameters": {"rope_type": "default", "rope_theta": "big"}},
            "must be a positive number; got 'big'",
        ),
        (
            {"num_hidden_layers": 10**6},
            "num_hidden_layers must be the number of layers that the weights hold, 2; got 1000000",
        ),
    ],
)
def test_a_field_that_no_model_can_be_built_from_is_named(folder, fields, message):
    declare(folder, **fields)
    with pytest.raises(ConfigError, match=message):
        open_model(folder)


def test_an_adapter_is_not_silently_left_out(folder):
    (folder / "adapter_config.json").write_text("{}")
    with pytest.raises(UnsupportedError, match=r"holds an adapter .* not loaded; merge it into its base"):
        open_model(folder)


@pytest.mark.parametrize("method", ["gptq", "bitsandbytes", "fp8"])
def test_quantised_weights_are_refused_as_such(folder, method):
    declare(folder, quantization_config={"quant_method": method})
    with pytest.raises(UnsupportedError, match=rf"holds quantised weights \(quant_method '{method}'\)"):
        open_model(folder)


@pytest.mark.parametrize("name", ["attn_implementation", "_attn_implementation"])
def test_a_kernel_of_the_hub_is_not_loaded(folder, name):
    declare(folder, **{name: "somebody/kernel"})
    with pytest.raises(
        UnsupportedError, match=r"asks for the attention kernel 'somebody/kernel' .*whose code is not"
    ):
        open_model(folder)


@pytest.mark.parametrize("layers", [None, slice(0, 1)])
def test_an_index_does_not_lead_to_pickled_weights(folder, layers):
    weights = index(folder, "evil.bin")
    torch.save(weights, folder / "evil.bin")
    with pytest.raises(
        UnsupportedError, match=r"maps weights to 'evil.bin', which is not a safetensors .*allow_pickle=T"
    ):
        open_model(folder, layers=layers)


@pytest.mark.parametrize(
    "file", ["../outside.safetensors", "/tmp/outside.safetensors", "sub/../x.safetensors", ".."]
)
def test_an_index_does_not_lead_out_of_the_folder(folder, file):
    index(folder, file)
    with pytest.raises(ConfigError, match=r"maps weights to .* which is not in its folder; save it anew"):
        open_model(folder)


@pytest.mark.parametrize("content", ["{}", "[]", '{"weight_map": {"a": 1}}'])
def test_an_index_without_a_map_is_refused(folder, content):
    (folder / "model.safetensors.index.json").write_text(content)
    with pytest.raises(ConfigError, match="has no weight_map from names of weights to names of files"):
        open_model(folder)


def test_weights_in_several_files_and_pickled_copies_beside_them_are_read(folder):
    weights = load_file(folder / "model.safetensors")
    FAMILIES["llama-default"]().save_pretrained(folder, max_shard_size="40KB")
    assert (folder / "model.safetensors.index.json").is_file()
    (folder / "pytorch_model.bin.index.json").write_text(
        json.dumps({"weight_map": dict.fromkeys(weights, "a.bin")})
    )
    (folder / "model.safetensors").unlink(missing_ok=True)
    torch.testing.assert_close(open_model(folder).state_dict(), FAMILIES["llama-default"]().state_dict())


@pytest.mark.parametrize("name", ["", "  "])
def test_an_empty_name_is_not_the_current_folder(name, sound, monkeypatch):
    monkeypatch.chdir(sound)
    with pytest.raises(ConfigError, match="a checkpoint is a folder or the id of a model; got an empty name"):
        open_model(name)


def test_loading_prints_nothing(sound, capfd):
    capfd.readouterr()
    open_model(sound)
    shown = capfd.readouterr()
    assert (shown.out, shown.err) == ("", "")


def test_the_command_names_its_options(folder, capsys):
    torch.save(index(folder, "evil.bin"), folder / "evil.bin")
    capsys.readouterr()
    assert main(("audit", str(folder))) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("or give --allow-pickle.")


def test_a_table_that_is_not_finite_is_named_with_its_layer():
    model = FAMILIES["llama-default"]()
    model.model.rotary_emb.inv_freq[2] = float("nan")
    with pytest.raises(
        ConfigError,
        match=r"layer 0: queries and keys hold NaN or infinity: model\.rotary_emb\.inv_freq is not finite",
    ):
        audit(model, length=16)


def test_products_that_overflow_are_named():
    model = FAMILIES["llama-default"]().half()
    model.model.layers[1].self_attn.q_proj.weight.data.fill_(6e4)
    with pytest.raises(
        ConfigError, match="layer 1: queries hold NaN or infinity: they overflow in this arithmetic"
    ):
        audit(model, length=16)


def test_sizes_that_are_left_out_are_not_taken_from_the_class(folder, capsys, monkeypatch):
    """A Llama of the class's own sizes has 7 billion weights."""
    (folder / "config.json").write_text(json.dumps({"model_type": "llama"}))
    monkeypatch.setattr(transformers.AutoModel, "from_pretrained", None)  # No model is built.
    assert main(["audit", str(folder)]) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert "config.json: vocab_size is missing, and what LlamaConfig takes instead, 32000" in told
    assert "model.embed_tokens.weight has shape 64 x 64; state vocab_size." in told
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", "vocab_size": 64}))
    with pytest.raises(ConfigError, match="hidden_size is missing, and what LlamaConfig takes instead, 4096"):
        open_model(folder)


def test_a_run_is_no_checkpoint(tmp_path):
    run = {"config": {}, "data_version": None, "results_version": 1}
    (tmp_path / "config.json").write_text(json.dumps(run))
    shutil.copy(__file__, tmp_path / "model.safetensors")
    with pytest.raises(ConfigError, match="is a run of this program, and no Hugging Face checkpoint"):
        open_model(tmp_path)


def test_a_table_that_is_narrower_than_the_hidden_states_lacks_no_size(tmp_path):
    narrow = {"input_embedding_size": 16, "output_embedding_size": 16, "num_hidden_layers": 1}
    config = transformers.RemBertConfig(vocab_size=64, intermediate_size=16, **narrow)
    transformers.RemBertForMaskedLM(config).save_pretrained(tmp_path)
    fields = json.loads((tmp_path / "config.json").read_text())
    assert fields.pop("hidden_size") == 1152
    (tmp_path / "config.json").write_text(json.dumps(fields))
    assert open_model(tmp_path).config.hidden_size == 1152
