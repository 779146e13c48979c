"""An audit in Python: what it takes, what it refuses, and how it is shown."""

import re

import polars
import pytest
import torch
import transformers
from tests.checkpoints.audit.families import FAMILIES, llama
from torch import nn
from transformers import (
    CLIPVisionConfig,
    LlamaConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    SqueezeBertConfig,
    SqueezeBertModel,
)

from spectrope.checkpoints.audit import audit, diff
from spectrope.checkpoints.audit.page import render_audit
from spectrope.checkpoints.audit.run import default_length
from spectrope.checkpoints.audit.text import COLUMNS, closing
from spectrope.core.errors import ConfigError, UnsupportedError

TAKES = "audit takes a Hugging Face model, a module of your own in sp.OwnModel, or the folder or id of .*"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("api")
    FAMILIES["smollm3"]().save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def found():
    return audit(FAMILIES["smollm3"](), length=32)


def test_a_folder_is_audited_with_the_command_s_options(folder):
    found = audit(folder, dtype="bfloat16", layers="2:", length=32, serving_modes=True, device="cpu")
    assert (found.dtype, [layer.layer for layer in found.layers]) == ("bfloat16", [2, 3])
    assert found.serving_modes
    some = audit(str(folder), layers=slice(0, 1), length=16)
    assert (some.ok, some.omitted) == (True, ("1", "2", "3"))
    assert closing(some).startswith("Layer 0 applies what the configuration declares, in everything")
    assert "Not checked: " in closing(some)
    assert "layers 1–3, which were not loaded; " in closing(some)
    assert "not checked: layers 1–3, which were not loaded" in str(some)


def test_layers_that_were_not_loaded_are_named_by_stack(tmp_path):
    FAMILIES["t5"]().save_pretrained(tmp_path)
    some = audit(tmp_path, layers="1:", length=16, serving_modes=False)
    assert some.omitted == ("encoder 0", "decoder 0")
    assert closing(some).startswith("Layers encoder 1, decoder 1 apply what")
    part = audit(tmp_path, part="encoder", layers="1:", length=16, serving_modes=False)
    assert part.omitted == ("0",)


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_the_implementation_of_attention_is_named(implementation):
    model = llama()
    model.set_attn_implementation(implementation)
    found = audit(model, length=16, serving_modes=False)
    with_it = f"with {implementation} attention of transformers {transformers.__version__}"
    assert str(found).splitlines()[0].endswith(f"16 positions in float32, {with_it}")
    assert f"in float32, {with_it}." in render_audit(found)
    assert f"; implementations of attention other than {implementation}; " in closing(found)


def test_the_closing_line_names_attention_that_was_not_run():
    model = llama()
    assert "outputs of attention functions for random inputs. " in closing(audit(model, length=16))
    model.config._attn_implementation_internal = "flash_attention_2"
    found = audit(model, length=16)
    assert found.untried == ("layers.0.self_attn", "layers.1.self_attn")
    untried = "the attention function of layers.0.self_attn, layers.1.self_attn, which was not run"
    assert untried in closing(found)
    assert "make of random inputs" not in closing(found)


def test_a_string_is_the_table(found):
    lines = str(found).splitlines()
    assert lines[0] == (
        "SmolLM3ForCausalLM (smollm3), 32 positions in float32, with sdpa attention of transformers "
        f"{transformers.__version__}"
    )
    assert lines[1].split() == ["layer", "position", "effective", "mask", "verdict"]
    assert lines[3].split() == ["0", "relative", "rotary,", "base", "2e+06", "causal", "matches"]
    notes = [line for line in lines if line.startswith("note: ")]
    assert len(lines) == 3 + len(found.layers) + len(found.serving_modes) + len(notes)


def test_a_string_says_why_something_differs():
    model = llama()
    model.model.rotary_emb.inv_freq *= 0.5
    text = str(audit(model, length=32))
    assert re.search(r"layer 0: SPE\d+ scaling: base 10000 declared, base 10000, linear by 2 effective", text)


def test_a_prompt_shows_the_table_of_verdicts(found):
    assert repr(found) == str(found)


def test_a_difference_is_a_table(found):
    model = FAMILIES["smollm3"]()
    model.model.rotary_emb.inv_freq *= 0.5
    changed = diff(found, audit(model, length=32))
    assert changed.to_frame()["verdict"].to_list() == ["differs"] * 3 + ["same"]
    assert "layer 0: frequencies, pair" in repr(changed)
    assert "<table>" in changed._repr_html_()
    assert diff(found, found).same


def test_a_notebook_shows_a_table_and_runs_nothing(found):
    html = found._repr_html_()
    assert html.count("<tr>") == 2 + len(found.layers)
    model = FAMILIES["smollm3"]()
    model.config._name_or_path = "<script>x</script>"
    assert "<script>" not in audit(model, length=16)._repr_html_()


def test_a_frame_has_a_row_per_layer(found):
    frame = found.to_frame()
    assert isinstance(frame, polars.DataFrame)
    assert tuple(frame.columns) == COLUMNS
    assert frame["position"].to_list() == ["relative"] * 3 + ["NoPE"]
    assert set(frame["verdict"]) == {"matches"}


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((nn.Linear(2, 2),), {}, f"{TAKES}; got Linear"),
        ((42,), {}, f"{TAKES}; got int"),
        ((llama(),), {"dtype": "bfloat16"}, "say how a checkpoint is loaded; got a loaded LlamaForCausalLM"),
        (
            ("x",),
            {"allow_everything": True},
            "audit has no argument 'allow_everything'; those of loading are",
        ),
        (("nobody/nothing",), {}, "in the local cache; allow_download=True downloads it from the hub"),
    ],
)
def test_a_wrong_argument_gets_one_line_in_python_s_words(arguments, options, message):
    with pytest.raises(ConfigError, match=message) as got:
        audit(*arguments, **options)
    assert "\n" not in str(got.value)
    assert "--" not in str(got.value)


@pytest.mark.parametrize("argument", ["path", 42, None])
def test_diff_takes_audits(argument, found):
    with pytest.raises(
        ConfigError, match=rf"diff compares two audits, .*; got a {type(argument).__name__}\."
    ):
        diff(found, argument)


def test_more_memory_than_there_is_is_one_line(monkeypatch):
    model = llama()

    def exhausted(*_, **__):
        raise RuntimeError("[enforce fail at alloc_cpu.cpp:117] . DefaultCPUAllocator: can't allocate memory")

    monkeypatch.setattr(model.model, "forward", exhausted)
    with pytest.raises(
        UnsupportedError, match="at length 4 needs more memory than there is; give a smaller length"
    ):
        audit(model, length=16)


def test_the_record_of_a_measured_rotation_names_its_schedule(found):
    turning = found.to_dict()["layers"][0]["effective"]["turning"]
    assert (turning["base"], turning["scaling"]) == (pytest.approx(2e6), "none")
    assert turning["factor"] == pytest.approx(1.0)


def test_a_tower_in_another_precision_is_not_that_of_the_text():
    text = LlamaConfig(
        vocab_size=64, hidden_size=64, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4
    )
    vision = CLIPVisionConfig(
        hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, image_size=32,
        patch_size=8,
    )  # fmt: skip
    config = LlavaConfig(vision_config=vision, text_config=text, image_token_index=60)
    model = LlavaForConditionalGeneration(config).eval()
    for part in (model.model.language_model, model.lm_head):
        for weight in part.parameters():  # As `from_pretrained` does it, which keeps frequencies in float32.
            weight.data = weight.data.to(torch.bfloat16)
    found = audit(model, length=64)
    assert (found.dtype, found.ok) == ("bfloat16", True)


def test_a_length_by_which_no_axes_can_be_told_apart_is_not_taken():
    sizes = {"hidden_size": 32, "embedding_size": 32, "intermediate_size": 32, "num_hidden_layers": 1}
    config = SqueezeBertConfig(vocab_size=64, max_position_embeddings=32, num_attention_heads=4, **sizes)
    model = SqueezeBertModel(config).eval()
    with pytest.raises(ConfigError, match=r"must differ from the width of 'squeezebert'.*; got 32"):
        audit(model, length=32)
    assert default_length(model) == 31
    assert audit(model, serving_modes=False).ok
