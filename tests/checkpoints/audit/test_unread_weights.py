"""Weights of attention and positions that a class does not load are found; others are not."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.checkpoints.audit.families import GROUPED, build
from transformers import EsmConfig, EsmForMaskedLM

from spectrope.checkpoints.audit import audit
from spectrope.core import unwatched


def saved(model, folder: Path, *, more=(), **fields):
    """A checkpoint with further weights, whose configuration says something else of its model."""
    model.save_pretrained(folder)
    weights = load_file(folder / "model.safetensors") | {name: torch.ones(4) for name in more}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | fields))
    return folder


def audited(folder, **options):
    return audit(folder, length=32, serving_modes=False, watch=unwatched, **options)


def ignored(found):
    return [(where, one.code, one.what, one.expected) for where, one in found.findings]


def test_norms_that_a_class_lacks(tmp_path):
    as_qwen2 = {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"]}
    model = build("Qwen3", **GROUPED, attention_bias=True)
    assert ignored(audited(saved(model, tmp_path, **as_qwen2))) == [
        ("checkpoint", "SPE118", f"weights {name}", "2 tensors")
        for name in ("k_norm.weight", "o_proj.bias", "q_norm.weight")
    ]


def test_biases_that_a_class_lacks(tmp_path):
    as_llama = {"model_type": "llama", "architectures": ["LlamaModel"]}
    found = audited(saved(build("Qwen2", **GROUPED), tmp_path, **as_llama))
    assert [one.what for _, one in found.findings] == [f"weights {side}_proj.bias" for side in "kqv"]
    assert "LlamaModel has no place for them" in str(found)


@pytest.mark.parametrize(
    "name",
    ["wpe.weight", "embed_positions.weight", "layers.0.self_attn.relative_attention_bias.weight",
     "layers.1.self_attn.sinks", "layers.0.self_attn.q_proj.lora_A.default.weight"],
)  # fmt: skip
def test_other_weights_of_attention_or_positions(tmp_path, name):
    found = audited(saved(build("Llama", **GROUPED), tmp_path, more=[name]))
    [(where, code, what, count)] = ignored(found)
    assert (where, code, count) == ("checkpoint", "SPE118", "1 tensor")
    assert name.endswith(what.removeprefix("weights "))


@pytest.mark.parametrize(
    "name",
    ["layers.0.self_attn.rotary_emb.inv_freq", "layers.7.self_attn.q_proj.weight", "score.weight",
     "layers.0.mlp.gate_proj.weight_scale", "embeddings.position_ids"],
)  # fmt: skip
def test_further_layers_heads_and_what_a_class_computes_are_none(tmp_path, name):
    assert audited(saved(build("Llama", **GROUPED), tmp_path, more=[name])).ok


def test_what_the_class_itself_lets_be_is_none(tmp_path):
    sizes = {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 1, "intermediate_size": 32}
    model = EsmForMaskedLM(EsmConfig(vocab_size=40, pad_token_id=1, mask_token_id=2, **sizes,
                                     position_embedding_type="rotary"))  # fmt: skip
    assert audited(saved(model, tmp_path, more=["esm.embeddings.position_embeddings.weight"])).ignored == ()


def test_layers_of_a_checkpoint(tmp_path):
    folder = saved(build("Llama", **GROUPED), tmp_path, more=["layers.1.self_attn.sinks"])
    assert [one.what for _, one in audited(folder, layers="1:").findings] == ["weights sinks"]
