"""Faults of masks, of positions of keys and of single heads: code, layer and head, in two families each."""

import pytest
import torch
import transformers
from tests.checkpoints.audit.families import FAMILIES, LENGTH, SIZES, build
from transformers.models.llama import modeling_llama
from transformers.models.modernbert import modeling_modernbert
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


@pytest.mark.sampled
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


def at(positions):
    """Rotate each token as if it had the position that `positions` gives its number."""

    def change(own, q, k, cos, sin):
        place = positions(torch.arange(cos.shape[1]))
        return own(q, k, cos[:, place], sin[:, place])

    return change


@pytest.mark.sampled
@pytest.mark.parametrize("family", ROTARY)
@pytest.mark.parametrize(
    ("positions", "says"),
    [
        (lambda t: t % 16, "restart every 16 tokens"),
        (lambda t: t % 40, "restart every 40 tokens"),
        (lambda t: t.clamp(max=31), "stay at 31 from token 31 on"),
        (lambda t: t // 2, "advance once in 2 tokens"),
        (lambda t: torch.where(t == 50, 7, t), "token 50 has position 7"),
    ],
)
def test_positions_that_are_not_those_of_the_tokens_are_named(family, positions, says, monkeypatch):
    turned(ROTARY[family], monkeypatch, at(positions))
    records = audit(FAMILIES[family](), length=LENGTH).records
    assert {(one.code, one.layer) for one in records} == {("SPE111", 0), ("SPE111", 1)}
    assert all(says in one.message for one in records)


@pytest.mark.parametrize("family", ["llama-default", "qwen3", "gpt_neox"])
def test_a_layer_with_an_attention_scale_of_its_own_is_named(family):
    model = FAMILIES[family]()
    module = next(
        module for name, module in model.named_modules() if ".1." in name and hasattr(module, "scaling")
    )
    module.scaling *= 1.25
    (found,) = audit(model, length=LENGTH).records
    assert (found.code, found.layer) == ("SPE404", 1)
    assert "1.25 times as large" in found.message


def test_a_scale_declared_by_layer_is_no_finding():
    config = transformers.GPT2Config(n_embd=64, n_head=4, n_layer=3, vocab_size=64)
    config.scale_attn_by_inverse_layer_idx = True
    assert audit(transformers.GPT2LMHeadModel(config).eval(), length=LENGTH).ok


SPECIAL = {"pad_token_id": 0, "cls_token_id": 1, "sep_token_id": 2, "bos_token_id": 1, "eos_token_id": 2}


def test_a_window_of_modernbert_that_is_dropped_is_found(monkeypatch):
    sizes = SIZES | SPECIAL | {"num_hidden_layers": 4, "local_attention": 16}
    model = transformers.ModernBertModel(transformers.ModernBertConfig(**sizes)).eval()
    assert audit(model, length=LENGTH).ok
    whole = modeling_modernbert.create_bidirectional_mask
    monkeypatch.setattr(modeling_modernbert, "create_bidirectional_sliding_window_mask", whole)
    records = audit(model, length=LENGTH).records
    assert {(one.code, one.layer) for one in records} == {("SPE202", 1), ("SPE202", 2)}
    assert all("bidirectional window 8 declared, bidirectional effective" in one.message for one in records)


def test_a_window_of_gpt_neo_that_is_dropped_is_found():
    sizes = {"hidden_size": 64, "num_heads": 4, "num_layers": 2, "vocab_size": 64, "intermediate_size": 64}
    config = transformers.GPTNeoConfig(**sizes, attention_types=[[["global", "local"], 1]], window_size=16)
    model = transformers.GPTNeoForCausalLM(config).eval()
    assert audit(model, length=LENGTH).ok
    attention = model.transformer.h[1].attn.attention
    attention.bias = torch.ones_like(attention.bias).tril()
    (found,) = audit(model, length=LENGTH).records
    assert (found.code, found.layer) == ("SPE202", 1)
    assert "causal window 16 declared, causal effective" in found.message


@pytest.mark.parametrize("family", ROTARY)
def test_a_factor_on_some_pairs_alone_is_named(family, monkeypatch):
    def larger(own, q, k, cos, sin):
        factor = torch.ones(cos.shape[-1])
        factor[[1, 1 + len(factor) // 2]] = 1.5
        return own(q, k, cos * factor, sin * factor)

    model = FAMILIES[family]()
    turned(ROTARY[family], monkeypatch, larger)
    result = audit(model, length=LENGTH)
    assert {one.code for one in result.records} == {"SPE103"}
    assert {layer.verdict for layer in result.layers} == {"differs"}
    assert all("1 in every pair declared, 1.5 in pair 1" in str(one) for _, one in result.findings)
