"""`spectrope diff` with a role, as a user types it."""

import json
import warnings

import pytest
import transformers
from tests.checkpoints.audit.families import ROPES, llama
from tests.checkpoints.pairs.models import ROPE

from spectrope.cli import BAD_INPUT, main
from spectrope.console.terminal import console


@pytest.fixture(scope="module")
def model():
    return llama(**ROPE)


@pytest.fixture
def folders(tmp_path, model, monkeypatch):
    """Checkpoints and an adapter as folders."""
    monkeypatch.setattr(console, "width", 200)
    model.save_pretrained(tmp_path / "base")
    other = llama(rope_parameters=ROPES["default"] | {"rope_theta": 1e4})
    other.save_pretrained(tmp_path / "other")
    adapter(tmp_path, tmp_path / "base")
    return tmp_path


def adapter(root, base):
    """An adapter of the queries' projections that says on which base it was trained."""
    import peft

    model = transformers.AutoModelForCausalLM.from_pretrained(root / "base")
    config = peft.LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of peft's use of transformers
        peft.get_peft_model(model, config).save_pretrained(root / "adapter")
    path = root / "adapter" / "adapter_config.json"
    fields = json.loads(path.read_text())
    path.write_text(json.dumps(fields | {"base_model_name_or_path": str(base)}))


def test_an_adapter_fits_the_base_that_it_was_trained_on(folders, capsys):
    assert main(("diff", str(folders / "base"), str(folders / "adapter"), "--role", "adapter")) == 0
    out = capsys.readouterr().out
    assert "Not compared: values, output projections, norms, feed-forward layers" in out
    assert "positional encodings compatible for use with its base: yes" in out
    assert "Queries and keys moved by up to " in out


def test_an_adapter_of_another_base_is_refused_by_name(folders, capsys):
    adapter(folders, folders / "other")
    assert main(("diff", str(folders / "base"), str(folders / "adapter"), "--role", "adapter")) == 1
    told = " ".join(capsys.readouterr().out.split())
    assert (
        f"base: 500000 in {folders / 'base'}, 10000 in {folders / 'other'}, on which it was trained" in told
    )


def test_an_adapter_that_does_not_fit_is_refused_in_one_line(folders, capsys):
    llama(hidden_size=32, **ROPE).save_pretrained(folders / "small")
    assert main(("diff", str(folders / "small"), str(folders / "adapter"), "--role", "adapter")) == BAD_INPUT
    assert "does not fit its base: " in capsys.readouterr().err


def test_an_adapter_that_names_others_is_not_asked_for(folders, capsys):
    path = folders / "adapter" / "adapter_config.json"
    fields = json.loads(path.read_text())
    path.write_text(json.dumps(fields | {"peft_type": "XLORA", "adapters": {"a": "someone/some-adapter"}}))
    arguments = ("diff", str(folders / "base"), str(folders / "adapter"), "--role", "adapter")
    assert main(arguments) == BAD_INPUT
    assert "holds X-LoRA, which names other adapters" in capsys.readouterr().err


def test_pickled_adapters_and_megatron_are_refused(folders, capsys):
    path = folders / "adapter" / "adapter_config.json"
    fields = json.loads(path.read_text())
    path.write_text(json.dumps(fields | {"megatron_config": {"a": 1}, "megatron_core": "antigravity"}))
    arguments = ("diff", str(folders / "base"), str(folders / "adapter"), "--role", "adapter")
    assert main(arguments) == BAD_INPUT
    assert "asks for Megatron" in capsys.readouterr().err
    (folders / "adapter" / "adapter_model.safetensors").rename(folders / "adapter" / "adapter_model.bin")
    assert main(arguments) == BAD_INPUT
    assert "save the adapter as safetensors" in capsys.readouterr().err


def test_a_draft_is_refused_on_the_command_line(folders, capsys):
    assert (
        main(("diff", str(folders / "base"), str(folders / "other"), "--role", "draft", "--length", "48"))
        == 1
    )
    out = capsys.readouterr().out
    assert f"SPE101 base: 500000 in {folders / 'base'}, 10000 in {folders / 'other'}" in " ".join(out.split())
    assert "positional encodings compatible for speculative decoding: no" in out
    assert main(("diff", str(folders / "base"), str(folders / "base"), "--role", "draft", "--json")) == 0
    assert json.loads(capsys.readouterr().out)["answer"] == "yes"


def test_the_inputs_of_a_merge_and_its_result_are_compared(folders, capsys):
    base, other = str(folders / "base"), str(folders / "other")
    assert main(("diff", base, base, "--more", base, other, "--role", "merge", "--length", "48")) == 1
    assert "positional encodings compatible for merging: no" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("base", "base", "--role", "dratf"), "unknown role 'dratf'; did you mean draft"),
        (("base", "base", "--more", "base"), "--more goes with --role merge."),
        (("base", "base", "--more", "base", "--role", "draft"), "role 'draft' compares two models; got 3."),
        (("base", "other", "--role", "adapter"), "holds no adapter_config.json; --role adapter takes a base"),
    ],
)
def test_a_mistake_gets_one_line(folders, capsys, arguments, message):
    given = [str(folders / one) if one in ("base", "other") else one for one in arguments]
    assert main(("diff", *given)) == BAD_INPUT
    assert message in capsys.readouterr().err
