"""Decoding from a cache, padding and packing apply the kernels of a plain forward pass, or are found out."""

import re
from dataclasses import replace

import pytest
import torch
from tests.checkpoints.audit import zoo
from tests.checkpoints.audit.families import FAMILIES, GPT2, GROUPED, ODD, build
from tests.checkpoints.audit.injections import attending, masked
from transformers import Gemma3ForCausalLM, Gemma3TextConfig, RobertaConfig, RobertaForMaskedLM
from transformers.models.qwen3 import modeling_qwen3

from spectrope.checkpoints.adapters import declared_config
from spectrope.checkpoints.audit import audit
from spectrope.checkpoints.audit.declaration import declared_mask
from spectrope.checkpoints.audit.fields import Declaration
from spectrope.checkpoints.audit.run import LATER
from spectrope.checkpoints.audit.serving import KEPT, served_tokens
from spectrope.checkpoints.audit.text import closing
from spectrope.checkpoints.commands.audit import reasons

UNPACKED = {
    "opt",
    "bert",
    "bloom",
    "bloom-6-heads",
    "mpt",
    "mpt-6-heads",
    "falcon-alibi",
    "falcon-rope",
    "t5",
    "bart",
}


NO_STATIC_CACHE = {"bert", "mpt", "mpt-6-heads", "falcon-alibi"}
OPEN = {"falcon-alibi": {"static cache"}, "falcon-rope": {"packed sequences"}}  # By the library's code.


@pytest.mark.sampled
@pytest.mark.parametrize("family", FAMILIES)
def test_every_serving_mode_of_an_unmodified_model_agrees(family):
    found = audit(FAMILIES[family](), length=32, serving_modes=True)
    assert [(name, str(finding)) for name, finding in found.findings] == []
    modes = {record.mode for record in found.serving_modes if record.verdict == "matches"}
    others = {record.mode for record in found.serving_modes} - modes
    assert others == OPEN.get(family, set())
    assert ("static cache" in modes) == (family not in NO_STATIC_CACHE)
    assert "right padding" in modes
    assert ("cached decoding" in modes) == (family != "bert")
    assert ("chunked prefill" in modes) == (family not in ("bert", "t5", "bart"))
    assert ("packed sequences" in modes) == (family not in UNPACKED)


@pytest.mark.parametrize("positions", [8, 16, 31])
def test_serving_modes_are_no_longer_than_the_model_s_positions(positions):
    model = build("GPT2", "LMHeadModel", **GPT2 | {"n_positions": positions})
    found = audit(model, serving_modes=True)
    assert [record.verdict for record in found.serving_modes] == ["matches"] * 9


@pytest.mark.parametrize(("window", "tokens"), [(24, 68), (100, 104), (4096, 68)])
def test_serving_modes_cross_the_end_of_a_window_that_they_can_hold(window, tokens):
    model = build("Mistral", **GROUPED | {"sliding_window": window})
    found = audit(model, length=32)
    assert found.outcome == "matches"
    assert served_tokens(model, Declaration(**declared_config(model)), found.layers, 32) == tokens
    named = (f"the end of a window or chunk of {window} tokens in serving modes, which have {tokens}",)
    assert found.unserved == (named if window > tokens else ())


def test_a_model_of_many_heads_keeps_the_logits_of_fewer_tokens():
    model = FAMILIES["llama-default"]()
    found = audit(model, length=32)
    many = [replace(found.layers[0], heads=found.layers[0].heads * 1280)]
    tokens = served_tokens(model, Declaration(**declared_config(model)), many, 32)
    assert tokens == 40
    assert 8 * 4 * 1280 * tokens**2 <= KEPT < 8 * 4 * 1280 * (tokens + 1) ** 2


@pytest.mark.parametrize("length", [32, 96])
def test_a_model_that_states_no_length_is_served_within_the_audited_one(length):
    model = FAMILIES["bloom"]()
    found = audit(model, length=32)
    tokens = served_tokens(model, Declaration(**declared_config(model)), found.layers, length)
    assert tokens == min(length, 68)


def test_serving_modes_stay_below_the_length_at_which_a_schedule_switches():
    model = FAMILIES["llama-dynamic"]()
    found = audit(model, length=32)
    trained = model.config.max_position_embeddings
    tokens = served_tokens(model, Declaration(**declared_config(model)), found.layers, 32)
    assert tokens == min(68, trained - 1)


@pytest.mark.parametrize(
    ("begin", "end", "padding", "has"),
    [
        (None, 2, 0, True),
        (1, None, 0, True),
        (None, [3, 2], 0, True),
        (2, 2, 2, False),
        (None, None, 0, False),
        (None, 999, 0, False),
    ],
)
def test_special_tokens_are_those_of_the_vocabulary_beside_that_of_padding(begin, end, padding, has):
    model = FAMILIES["llama-default"]()
    model.config.bos_token_id, model.config.eos_token_id, model.config.pad_token_id = begin, end, padding
    modes = {record.mode for record in audit(model, length=32).serving_modes}
    assert ("special tokens" in modes) == has


def test_a_static_cache_leaves_nothing_on_the_model():
    model = FAMILIES["gpt2"]()
    before = set(vars(model))
    assert "static cache" in {record.mode for record in audit(model, length=32).serving_modes}
    assert set(vars(model)) == before


def test_alibi_of_the_library_s_falcon_does_not_run_with_a_static_cache():
    """It adds slopes times the tokens so far to logits for all keys that the cache has room for."""
    found = audit(FAMILIES["falcon-alibi"](), length=32)
    assert found.ok
    assert "static cache (RuntimeError" in " ".join(found.unserved)


def test_a_serving_mode_that_the_model_refuses_is_one_of_which_nothing_can_be_told(monkeypatch):
    model = FAMILIES["gpt2"]()

    def refuse(**_):
        raise NotImplementedError("no cache here\nand more")

    monkeypatch.setattr(model, "generate", refuse)
    found = audit(model, length=32, serving_modes=True)
    assert {record.mode: record.verdict for record in found.serving_modes} == {
        "cached decoding": "cannot tell",
        "static cache": "cannot tell",
        "beam search": "matches",
        "left padding": "cannot tell",
        "chunked prefill": "matches",
        "right padding": "matches",
        "packed sequences": "matches",
        "inputs_embeds": "matches",
        "special tokens": "matches",
    }
    assert ("serving mode left padding", "NotImplementedError: no cache here") in reasons(found)
    assert not found.ok
    asked_for_nothing = audit(model, length=32)
    assert asked_for_nothing.ok
    refused = ("cached decoding (NotImplementedError: no cache here)", "left padding (NotImplementedError")
    assert all(one in " ".join(asked_for_nothing.unserved) for one in refused)
    assert refused[0] in closing(asked_for_nothing)


def test_two_tokens_leave_none_to_decode():
    model = zoo.build(zoo.Variant("doge", "causal"))
    model.config.keep_window_size = 2
    found = audit(model, length=40)
    assert found.ok
    assert "beam search (so short a text leaves no token to decode)" in found.unserved


def test_weights_that_are_not_those_of_softmax_are_told_once(monkeypatch):
    model = FAMILIES["llama-default"]()
    attending(lambda own, q, k, v, mask, given: own(q.tanh(), k, v, mask))(model, monkeypatch)
    found = audit(model, length=32, serving_modes=True)
    assert all(
        "other weights effective (off by up to" in str(one) for x in found.layers for one in x.findings
    )
    matching = {record.mode for record in found.serving_modes if record.verdict == "matches"}
    assert {"cached decoding", "static cache", "beam search", "packed sequences"} <= matching


def test_a_factor_is_compared_whatever_other_families_call_a_field():
    model = FAMILIES["llama-default"]()
    model.config.talking_head = True
    for layer in model.model.layers:
        layer.self_attn.scaling *= 2
    assert {one.code for one in audit(model, length=32).records} == {"SPE404"}


def test_a_layer_that_differs_comes_first():
    model = FAMILIES["llama-default"]()
    model.model.rotary_emb.inv_freq *= 0.5
    found = audit(model, length=32)
    assert found.serving_modes == ()
    assert ("not checked", LATER) in reasons(found)
    assert audit(model, length=32, serving_modes=True).serving_modes


def test_chunks_whose_positions_restart_are_found(monkeypatch):
    model = FAMILIES["gpt2"]()
    body = model.transformer
    forward = body.forward

    def restarting(*args, position_ids=None, **given):
        n = (*args, given.get("input_ids"))[0].shape[1]
        return forward(*args, position_ids=torch.arange(n)[None], **given)

    monkeypatch.setattr(body, "forward", restarting)
    found = audit(model, length=32)
    wrong = [one for one in found.serving_modes if one.verdict == "differs"]
    assert "chunked prefill" in [one.mode for one in wrong]
    assert found.outcome == "differs"
    chunked = next(record for record in wrong if record.mode == "chunked prefill")
    assert str(chunked.findings[0]) == "position of token 12: row 12 expected, row 0 effective"


def test_conversions_that_would_change_kernels_are_noted():
    model = FAMILIES["llama-default"]()
    frequencies = model.model.rotary_emb.inv_freq.clone()
    found = audit(model, length=32)
    rounded, emptied = found.notes
    assert re.match(r"model\.to\(torch\.bfloat16\) would round model\.rotary_emb\.inv_freq", rounded)
    assert "does not bring back model.rotary_emb.inv_freq" in emptied
    assert torch.equal(model.model.rotary_emb.inv_freq, frequencies)
    assert found.ok
    assert audit(FAMILIES["gpt2"](), length=32).notes == ()


def test_what_the_notes_say_of_conversions_is_so(tmp_path):
    model = FAMILIES["llama-default"]()
    model.save_pretrained(tmp_path)
    loaded = type(model).from_pretrained(tmp_path, dtype=torch.bfloat16)
    assert audit(loaded, length=256).ok
    assert not audit(model.to(torch.bfloat16), length=256).ok
    with torch.device("meta"):
        empty = type(model)(model.config)
    empty = empty.to_empty(device="cpu").eval()
    empty.load_state_dict(loaded.float().state_dict())
    for name in ("inv_freq", "original_inv_freq"):
        getattr(empty.model.rotary_emb, name).zero_()  # which fresh memory may hold
    assert audit(empty, length=32).outcome == "differs"


def test_a_window_of_one_key_which_the_library_s_cache_does_not_keep_is_found():
    found = audit(ODD["window of 1"](), length=32)
    assert {record.mode for record in found.serving_modes if record.verdict == "differs"} == {
        "cached decoding"
    }
    assert {finding.what for _, finding in found.findings} == {"mask of layer 0", "mask of layer 1"}


def test_a_configuration_edited_once_the_model_was_built_is_what_is_declared():
    model = FAMILIES["llama-default"]()
    model.config.rope_parameters["rope_theta"] = 10000.0
    found = audit(model, length=32)
    assert {finding.what for _, finding in found.findings} == {"base"}


def of_the_first_row(mask_or_positions):
    return mask_or_positions[:1].expand_as(mask_or_positions)


def test_a_row_that_gets_the_positions_of_another_is_found():
    model = build("Llama", **GROUPED)
    own = model.model.rotary_emb.forward
    model.model.rotary_emb.forward = lambda x, position_ids: own(x, of_the_first_row(position_ids))
    found = audit(model, length=32).records
    assert {(one.code, one.where) for one in found} == {("SPE501", "serving mode left padding")}
    assert all("in the row without padding, below one that has some" in one.message for one in found)


def test_a_row_that_gets_the_rows_of_a_table_of_another_is_found():
    model = build("GPT2", "LMHeadModel", **GPT2)
    model.transformer.wpe.register_forward_pre_hook(lambda _, args: (of_the_first_row(args[0]),))
    (found,) = audit(model, length=32).records
    assert (found.code, found.where) == ("SPE402", "serving mode left padding")
    assert "position of token 1: row 1 expected, row 0 effective" in found.message


def test_a_row_that_gets_the_padding_of_another_is_found(monkeypatch):
    own = modeling_qwen3.create_causal_mask

    def shared(*args, attention_mask=None, **options):
        if attention_mask is not None and attention_mask.ndim == 2:
            attention_mask = of_the_first_row(attention_mask)
        return own(*args, attention_mask=attention_mask, **options)

    model = build("Qwen3", **GROUPED)
    assert audit(model, length=32).ok
    monkeypatch.setattr(modeling_qwen3, "create_causal_mask", shared)
    found = audit(model, length=32).records
    assert {one.where for one in found} == {"serving mode left padding", "serving mode right padding"}
    assert all("mask of layer" in one.message for one in found)


def test_packed_sequences_that_the_model_takes_for_one_are_named_as_not_checked(monkeypatch):
    own = modeling_qwen3.create_causal_mask
    merged = "packed sequences (the model takes them for one)"
    assert merged not in audit(build("Qwen3", **GROUPED), length=32).unserved
    monkeypatch.setattr(
        modeling_qwen3,
        "create_causal_mask",
        lambda *args, **options: own(*args, **options | {"position_ids": None}),
    )
    found = audit(build("Qwen3", **GROUPED), length=32)
    assert (found.outcome, found.unserved) == ("matches", (merged,))
    assert merged in closing(found)
    required = audit(build("Qwen3", **GROUPED), length=32, serving_modes=True)
    assert (required.outcome, required.unserved) == ("incomplete", ())
    assert ("serving mode packed sequences", "the model takes them for one") in reasons(required)


def test_a_class_that_cannot_generate_leaves_required_serving_modes_open():
    model = build("Llama", "Model", **GROUPED)
    undecoded = "decoding from caches and left padding (the class has no generate)"
    found = audit(model, length=32)
    assert (found.outcome, found.unserved) == ("matches", (undecoded,))
    required = audit(model, length=32, serving_modes=True)
    assert (required.outcome, required.unserved) == ("incomplete", ())
    assert undecoded in map(str, required.serving_modes)


@pytest.mark.parametrize(("layers", "named"), [((), {0, 1}), ((1,), {1})])
def test_packed_sequences_of_which_layers_see_the_one_from_the_other_are_found(layers, named, monkeypatch):
    """The library told them apart, and the mask at the kernel does not."""
    model = build("Qwen3", **GROUPED)
    masked(lambda lag: lag >= 0, layers)(model, monkeypatch)
    mode = next(one for one in audit(model, length=32).serving_modes if one.mode == "packed sequences")
    assert mode.verdict == "differs"
    assert {str(one) for one in mode.findings} == {
        f"mask of layer {layer}: sequences apart expected, the first seen from the second effective"
        for layer in named
    }


def test_a_row_behind_a_prompt_of_the_model_is_not_compared():
    """CPM-Ant puts 32 tokens of its own before those of the text."""
    result = audit(zoo.build(zoo.Variant("cpmant", zoo.families()["cpmant"])), length=48)
    assert "right padding" in {one.mode for one in result.serving_modes}
    assert not any(one.findings for one in result.serving_modes)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn])
def test_a_rounded_table_is_named_as_such_and_its_rows_are_found_in_every_mode(dtype):
    model = build("GPT2", "LMHeadModel", **GPT2)
    model.transformer.wpe.register_forward_hook(lambda *args: args[-1].to(dtype).float())
    found = audit(model, length=32, serving_modes=True)
    (record,) = found.records
    assert (record.code, record.where) == ("SPE401", "embeddings of h.0")
    assert "as when the table is rounded to low precision" in record.message
    assert {one.verdict for one in found.serving_modes} == {"matches"}


def test_rows_of_a_table_that_are_equal_are_one_row():
    model = build("GPT2", "LMHeadModel", **GPT2)
    with torch.no_grad():
        model.transformer.wpe.weight[5] = model.transformer.wpe.weight[4]
        model.transformer.wpe.weight[7] = 0
    assert audit(model, length=32, serving_modes=True).ok
    model.transformer.wpe.register_forward_hook(lambda *args: args[-1].bfloat16().float())
    (record,) = audit(model, length=32, serving_modes=True).records
    assert "as when the table is rounded to low precision" in record.message


@pytest.mark.parametrize("length", [48, 96])
def test_what_logits_of_a_query_have_in_common_is_no_size(length):
    assert audit(zoo.build(zoo.Variant("mpt", "causal", dtype="bfloat16")), length=length).ok


def test_chunks_of_a_class_that_counts_anew_are_named_as_not_checked():
    found = audit(zoo.build(zoo.Variant("bamba", "causal")), length=72)
    assert found.ok
    (reason,) = (one for one in found.unserved if "chunked prefill" in one)
    assert "given no positions, the library's class counts from 0 behind a cache" in reason
    required = audit(zoo.build(zoo.Variant("bamba", "causal")), length=72, serving_modes=True)
    assert [one.mode for one in required.serving_modes if one.verdict == "differs"] == ["chunked prefill"]


@pytest.mark.parametrize("first", ["sliding_attention", "full_attention"])
@pytest.mark.parametrize("kind", ["dynamic", "longrope"])
def test_schedules_of_later_kinds_of_layers_count(kind, first):
    scaled = {
        "dynamic": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 4.0},
        "longrope": {"rope_type": "longrope", "rope_theta": 1e4, "factor": 2.0, "short_factor": [1.0] * 8,
                     "long_factor": [1 + i / 2 for i in range(8)], "original_max_position_embeddings": 32},
    }  # fmt: skip
    config = Gemma3TextConfig(
        vocab_size=64, hidden_size=64, intermediate_size=64, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, head_dim=16, max_position_embeddings=64, sliding_window=16,
        layer_types=[first, "sliding_attention", "full_attention"],
        rope_parameters={
            "full_attention": scaled[kind],
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        },
    )  # fmt: skip
    assert audit(Gemma3ForCausalLM(config).eval(), length=96).ok


def test_queries_and_keys_of_zeros_hide_how_they_turn():
    model = zoo.build(zoo.Variant("llama", "causal"))
    attention = model.model.layers[1].self_attn
    attention.q_proj.weight.data.zero_()
    attention.k_proj.weight.data.zero_()
    first, second = audit(model, length=64).layers
    assert first.verdict == "matches"
    assert (second.verdict, second.reason) == (
        "cannot tell",
        "queries and keys are all zero, which hides how they turn",
    )


def test_a_token_that_the_table_takes_for_padding_is_no_special_one():
    model = zoo.build(zoo.Variant("mpnet", "masked"))
    assert model.config.bos_token_id == model.mpnet.embeddings.position_embeddings.padding_idx
    assert audit(model, length=72).ok


@pytest.mark.parametrize("token", [4, 5, 6])
def test_any_token_may_be_that_of_padding(token):
    sizes = {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 1, "intermediate_size": 32}
    config = RobertaConfig(vocab_size=12, pad_token_id=token, bos_token_id=0, eos_token_id=2, **sizes)
    assert audit(RobertaForMaskedLM(config).eval(), length=32).ok


def test_a_vocabulary_may_hold_few_tokens():
    assert audit(build("Llama", **GROUPED | {"vocab_size": 4}), length=32).ok


@pytest.mark.parametrize("kept", [16, 48])
def test_a_mask_that_depends_on_the_content_is_not_compared(kept):
    model = zoo.build(zoo.Variant("doge", "causal"))
    model.config.keep_window_size = kept
    for layer in model.model.layers:
        layer.self_attn.keep_window_size = kept
    assert audit(model, length=32).outcome != "differs"


def test_chunks_of_one_token_are_windows_of_one():
    declared = Declaration({"attention_chunk_size": 1}, {"layer_types": ["chunked_attention"]})
    assert str(declared_mask(declared, 0)) == "causal window 1"
