"""Weights that stay in their files: the same audit, in the memory of one layer."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import nn

import spectrope as sp
from spectrope.checkpoints.adapters import mapped, open_model
from spectrope.checkpoints.adapters.mapped import Mapping, give_back_after_layers, weight_files
from spectrope.core.errors import ConfigError

LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux lists what is mapped")
SMALL = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 64}
GATED = {**SMALL, "intermediate_size": 64}
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaForCausalLM", {**GATED, "num_key_value_heads": 2}),
    "llama-tied": ("LlamaForCausalLM", {**GATED, "tie_word_embeddings": True}),
    "gpt2": ("GPT2LMHeadModel", {"n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 64}),
    "bert": ("BertForMaskedLM", {**GATED, "max_position_embeddings": 64}),
    "bloom": ("BloomForCausalLM", {"hidden_size": 64, "n_layer": 2, "n_head": 4, "vocab_size": 64}),
    "t5": (
        "T5ForConditionalGeneration",
        {"d_model": 64, "d_kv": 16, "d_ff": 64, "num_layers": 2, "num_heads": 4, "vocab_size": 64},
    ),
    "xlnet": (
        "XLNetLMHeadModel",
        {"d_model": 64, "n_layer": 2, "n_head": 4, "d_inner": 64, "vocab_size": 64},
    ),
    "mixtral": ("MixtralForCausalLM", {**GATED, "num_key_value_heads": 4, "num_local_experts": 2}),
}


def saved(folder: Path, family: str, shard: str = "40KB") -> Path:
    """A checkpoint of several files."""
    name, fields = FAMILIES[family]
    cls = getattr(transformers, name)
    torch.manual_seed(0)
    cls(cls.config_class(**fields)).save_pretrained(folder, max_shard_size=shard)
    return folder


def opened(folder: Path, monkeypatch: pytest.MonkeyPatch, **options: Any) -> nn.Module:
    """The model with its weights left in their files."""
    monkeypatch.setattr(mapped, "LARGE", 0)
    return open_model(folder, by_layer=True, **options)


def mapping_of(folder: Path) -> Mapping:
    return Mapping.of(weight_files(folder))


@pytest.mark.sampled
@pytest.mark.parametrize("family", FAMILIES)
def test_the_audit_of_a_folder_is_the_same_byte_for_byte(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = saved(tmp_path, family)
    assert len(weight_files(folder)) > 1
    whole = sp.audit(folder, device="cpu", length=32, watch=sp.unwatched).to_dict()
    monkeypatch.setattr(mapped, "LARGE", 0)
    by_layer = sp.audit(folder, device="cpu", length=32, watch=sp.unwatched).to_dict()
    assert json.dumps(by_layer) == json.dumps(whole)


@LINUX
@pytest.mark.parametrize("family", FAMILIES)
def test_weights_that_were_given_back_are_read_again(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = saved(tmp_path, family)
    whole = {name: x.detach().clone() for name, x in open_model(folder).named_parameters()}
    model, mapping = opened(folder, monkeypatch), mapping_of(folder)
    mapping.give_back([x.data for x in model.parameters()])
    held = sum(x.nbytes for x in model.parameters() if mapping.holds(x.data))
    for name, x in model.named_parameters():
        assert torch.equal(x, whole[name]), name
    merges = family == "mixtral"  # whose experts the library makes one tensor
    assert (held > 0.95 * sum(x.nbytes for x in whole.values())) == (not merges)


@LINUX
def test_a_layer_gives_its_memory_back_and_nothing_else_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = saved(tmp_path, "llama", "10MB")
    model: Any = opened(folder, monkeypatch)
    before = [x.detach().clone() for x in model.parameters()]
    given: list[int] = []
    monkeypatch.setattr(Mapping, "give_back", lambda _, some: given.append(sum(x.nbytes for x in some)))
    model(torch.zeros(1, 4, dtype=torch.long))
    layer = sum(x.nbytes for x in model.model.layers[0].parameters())
    assert given.count(layer) == 2
    assert sum(given) == sum(x.nbytes for x in model.parameters())
    monkeypatch.undo()
    mapping_of(folder).give_back([x.data for x in model.parameters()])
    assert all(map(torch.equal, model.parameters(), before))


def resident(folder: Path) -> int:
    """KiB of the weights' files that are in the memory of this process."""
    own, total = str(folder), 0
    for line in Path("/proc/self/smaps").read_text().splitlines():
        fields = line.split()
        if not fields[0].endswith(":"):
            inside = len(fields) > 5 and fields[5].startswith(own)
        elif fields[0] == "Rss:" and inside:
            total += int(fields[1])
    return total


@LINUX
def test_pages_leave_the_memory_of_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    fields: dict[str, Any] = {**GATED, "hidden_size": 512, "num_hidden_layers": 4}
    config = transformers.LlamaConfig(**fields)
    transformers.LlamaForCausalLM(config).save_pretrained(tmp_path)
    model: Any = opened(tmp_path, monkeypatch)
    layer = sum(x.nbytes for x in model.model.layers[0].parameters()) // 1024
    assert resident(tmp_path) < layer
    most: list[int] = []
    for block in model.model.layers:
        block.mlp.register_forward_hook(lambda *_: most.append(resident(tmp_path)))
    model(torch.zeros(1, 4, dtype=torch.long))
    assert layer / 2 < max(most) < 2 * layer
    assert resident(tmp_path) < layer


@LINUX
def test_small_and_converted_weights_and_such_of_other_files_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = saved(tmp_path, "llama")
    assert not any(part._forward_hooks for part in open_model(folder, by_layer=True).modules())
    assert any(part._forward_hooks for part in opened(folder, monkeypatch).modules())
    half = opened(folder, monkeypatch, dtype="bfloat16")
    assert {x.dtype for x in half.parameters()} == {torch.bfloat16}
    assert not any(part._forward_hooks for part in half.modules())
    own = torch.ones(4096)
    mapping_of(folder).give_back([own])
    assert bool((own == 1).all())
    (folder / "model.safetensors.index.json").unlink()
    assert weight_files(folder) == []


def test_a_system_that_does_not_say_what_is_mapped_keeps_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = saved(tmp_path, "llama")
    monkeypatch.setattr(sys, "platform", "darwin")
    assert mapping_of(folder) == Mapping()
    model = open_model(folder)
    give_back_after_layers(model, Mapping())
    assert not any(part._forward_hooks for part in model.modules())


def test_faults_of_the_files_are_those_of_ordinary_loading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, fields = FAMILIES["llama"]
    cls = getattr(transformers, name)
    model = cls(cls.config_class(**fields))
    with torch.no_grad():
        model.model.layers[1].mlp.up_proj.weight[0, 0] = torch.nan
    model.save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match=r"layers\.1\.mlp\.up_proj\.weight that are not finite"):
        opened(tmp_path, monkeypatch)
    weight_files(tmp_path)[0].write_bytes(b"no tensors")
    with pytest.raises(ConfigError, match="cannot be loaded"):
        opened(tmp_path, monkeypatch)
