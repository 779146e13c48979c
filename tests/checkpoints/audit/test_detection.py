"""Faults of masks, of positions of keys and of single heads: code, layer and head, in two families each."""

import pytest
import torch
from tests.checkpoints.audit.families import FAMILIES, LENGTH, SIZES, build
from transformers.models.llama import modeling_llama
from transformers.models.qwen3 import modeling_qwen3

from spectrope.checkpoints.audit import audit

ROTARY = {"llama-default": modeling_llama, "qwen3": modeling_qwen3}


def turned(module, patch, change):
    """Let `change` see queries and keys before and after their rotation, with the function that rotates."""
    own = module.apply_rotary_pos_emb
    patch.setattr(module, "apply_rotary_pos_emb", lambda q, k, cos, sin: change(own, q, k, cos, sin))


def keys_late(own, q, k, cos, sin):
    first_cos, first_sin = cos[:, 1:2], sin[:, 1:2]
    later_cos, later_sin = cos * first_cos - sin * first_sin, sin * first_cos + cos * first_sin
    return own(q, k, cos, sin)[0], own(q, k, later_cos, later_sin)[1]


def queries_alone(own, q, k, cos, sin):
    return own(q, k, cos, sin)[0], k


def second_group_unrotated(own, q, k, cos, sin):
    query, key = own(q, k, cos, sin)
    return query, torch.cat([key[:, :1], k[:, 1:]], 1)


def third_query_head_backwards(own, q, k, cos, sin):
    query, key = own(q, k, cos, sin)
    return torch.cat([query[:, :2], own(q, k, cos, -sin)[0][:, 2:3], query[:, 3:]], 1), key


@pytest.mark.parametrize("family", ROTARY)
@pytest.mark.parametrize(
    ("change", "code", "head", "says"),
    [
        (keys_late, "SPE108", None, "1 ahead of queries"),
        (queries_alone, "SPE109", None, "rotation of keys alone"),
        (second_group_unrotated, "SPE109", 1, "keys of key-value head 1"),
        (third_query_head_backwards, "SPE107", 2, "queries of head 2"),
    ],
)
def test_a_rotation_that_is_not_the_same_everywhere_is_named(family, change, code, head, says, monkeypatch):
    turned(ROTARY[family], monkeypatch, change)
    records = audit(FAMILIES[family](), length=LENGTH).records
    assert {(one.code, one.layer, one.head) for one in records} == {(code, 0, head), (code, 1, head)}
    assert all(says in one.message for one in records)


def masked(model, layers, allowed):
    """Codes and layers found in a model whose layers of those numbers get the mask that `allowed` draws."""

    def hook(module, args, given):
        states = args[0] if args else given["hidden_states"]
        lag = torch.arange(states.shape[1])[:, None] - torch.arange(states.shape[1])
        mask = torch.zeros(lag.shape).masked_fill(~allowed(lag), -torch.inf)
        return args, given | {"attention_mask": mask[None, None]}

    for name, module in model.named_modules():
        if hasattr(module, "is_causal") and any(f".{layer}." in f"{name}." for layer in layers):
            module.register_forward_pre_hook(hook, with_kwargs=True)
    return {(one.code, one.layer) for one in audit(model, length=LENGTH).records}


@pytest.mark.parametrize("family", ["llama-default", "gpt_neox"])
@pytest.mark.parametrize("layers", [(1,), (0, 1)])
@pytest.mark.parametrize("ahead", [1, LENGTH])
def test_a_decoder_that_sees_ahead_is_found(family, layers, ahead):
    found = masked(FAMILIES[family](), layers, lambda lag: lag >= -ahead)
    assert found == {("SPE201", layer) for layer in layers}


@pytest.mark.parametrize("family", ["Bert", "Electra"])
def test_an_encoder_made_causal_is_found(family):
    model = build(family, "ForMaskedLM", **SIZES)
    assert masked(model, (0,), lambda lag: lag >= 0) == {("SPE201", 0)}
