"""No false alarm on any unmodified model, and what is measured is what was put in."""

import json

import pytest
import torch
import transformers
from tests.checkpoints.audit.families import (
    CHANGED,
    FALCON,
    FAMILIES,
    GPT2,
    LENGTH,
    MPT,
    ODD,
    ROPES,
    build,
    llama,
)

from spectrope.checkpoints.adapters import open_model
from spectrope.checkpoints.audit import Audit, audit

POSITIONS = {
    "gpt2": ["absolute"] * 2,
    "opt": ["absolute"] * 2,
    "bert": ["absolute"] * 2,
    "bart": ["absolute"] * 4,
    "t5": ["relative"] * 4,
    "gemma3": ["relative"] * 3,
    "smollm3": ["relative"] * 3 + ["NoPE"],
    "llama4": ["relative"] * 2 + ["NoPE"],
}


@pytest.fixture(scope="module", params=FAMILIES)
def audited(request) -> tuple[str, Audit]:
    return request.param, audit(FAMILIES[request.param](), length=LENGTH)


def test_an_unmodified_model_matches(audited):
    _, found = audited
    assert [(name, str(finding)) for name, finding in found.findings] == []
    assert {layer.verdict for layer in found.layers} == {"matches"}
    assert found.ok


def test_heads_are_classified(audited):
    name, found = audited
    expected = POSITIONS.get(name, ["relative"] * 2)
    assert [layer.position for layer in found.layers] == expected
    for layer in found.layers:
        assert all(head.position == layer.position for head in layer.heads)
        assert all(head.toeplitz_distance is None or head.toeplitz_distance < 1e-9 for head in layer.heads)


def test_the_record_serialises(audited):
    _, found = audited
    read = json.loads(json.dumps(found.to_dict()))
    assert read["ok"] is True
    assert len(read["layers"]) == len(found.layers)
    assert read["layers"][0]["effective"]["mask"]["shape"] == found.layers[0].effective.mask.shape


@pytest.mark.sampled
@pytest.mark.parametrize("family", ["llama-default", "gptj", "cohere", "deepseek_v3", "gpt_neox", "phi3"])
def test_frequencies_are_recovered_to_1e_4(family):
    for layer in audit(FAMILIES[family](), length=LENGTH).layers:
        declared, effective = layer.declared.turning, layer.effective.turning
        assert effective.frequencies == pytest.approx(declared.frequencies, rel=1e-4)
        assert (effective.start, effective.width) == (declared.start, declared.width)
        assert max(effective.errors) < 1e-7
        assert effective.pairing == declared.pairing


@pytest.mark.sampled
@pytest.mark.parametrize("kind", ROPES)
def test_the_scaling_is_named(kind):
    (layer, _) = audit(llama(rope_parameters=dict(ROPES[kind])), length=LENGTH).layers
    fit = layer.effective.turning.fit(layer.declared.turning)
    names = {"default": "none", "linear": "linear", "dynamic": "none"}
    assert fit.scaling == names.get(kind, "ramp")
    assert fit.base == pytest.approx(ROPES[kind]["rope_theta"], rel=1e-3)


def test_dynamic_scaling_sets_in_beyond_the_trained_length():
    model = llama(rope_parameters=dict(ROPES["dynamic"]), max_position_embeddings=64)
    assert audit(model, length=64).layers[0].effective.turning.fit().base == pytest.approx(1e4, rel=1e-3)
    found = audit(model, length=LENGTH)
    assert found.ok
    assert found.layers[0].effective.turning.fit().base == pytest.approx(1e4 * 2 ** (16 / 14), rel=1e-3)
    assert found.layers[0].reach.unseen > 0


def test_longrope_switches_at_the_trained_length():
    model = llama(rope_parameters=dict(ROPES["longrope"]))
    short, long = (audit(model, length=n) for n in (32, 33))
    assert short.ok
    assert long.ok
    assert short.layers[0].effective.turning.frequencies[1] > long.layers[0].effective.turning.frequencies[1]


def test_every_stack_has_its_own_table():
    model = FAMILIES["bart"]()
    model.model.decoder.embed_positions.offset = 0
    found = audit(model, length=LENGTH)
    assert [one.table for one in found.absolutes] == ["encoder.embed_positions", "decoder.embed_positions"]
    assert [one.first_row for one in found.absolutes] == [2, 0]
    assert [one.verdict for one in found.absolutes] == ["matches", "differs"]


def test_llama4_queries_grow_with_position():
    model = FAMILIES["llama4"]()
    model.config.floor_scale = 16
    for layer in model.model.layers:
        layer.self_attn.floor_scale = 16
    found = audit(model, length=LENGTH)
    assert found.ok
    assert found.layers[2].effective.query_scale == pytest.approx(1 + 0.1 * torch.tensor(7.0).log().item())


def test_falcon_adds_alibi_twice_without_fused_attention():
    """The library's eager path adds the bias that its mask holds already."""
    model = build("Falcon", **FALCON, attn_implementation="eager")
    found = audit(model, length=LENGTH)
    assert not found.ok
    fused = audit(FAMILIES["falcon-alibi"](), length=LENGTH).layers[0].effective.slopes
    assert found.layers[0].effective.slopes == pytest.approx([2 * slope for slope in fused], rel=1e-3)


def test_mpt_adds_alibi_although_it_is_switched_off():
    """The library's code does not look at the switch."""
    found = audit(build("Mpt", **MPT, attn_config={"alibi": False}), length=LENGTH)
    assert [str(finding) for _, finding in found.findings] == [
        "encoding: none declared, linear bias, slopes 0.25 … 0.003906 effective"
    ] * 2


@pytest.mark.sampled
@pytest.mark.parametrize("odd", ODD)
def test_odd_configurations_raise_no_alarm(odd):
    found = audit(ODD[odd](), length=LENGTH, serving_modes=False)
    assert [(name, str(finding)) for name, finding in found.findings] == []
    assert found.ok


@pytest.mark.parametrize("family", ["llama-yarn", "bloom-6-heads", "cohere", "t5"])
def test_a_checkpoint_in_bfloat16_matches(family, tmp_path):
    FAMILIES[family]().save_pretrained(tmp_path)
    found = audit(open_model(tmp_path, dtype="bfloat16"), length=32)
    assert found.findings == []
    assert found.ok
    assert found.dtype == "bfloat16"


def test_an_unknown_family_is_undeclared():
    class Mine(transformers.GPT2Config):
        model_type = "mine"

    model = transformers.GPT2LMHeadModel(Mine(**GPT2))
    found = audit(model, length=LENGTH)
    assert {layer.verdict for layer in found.layers} == {"undeclared"}
    assert [one.verdict for one in found.absolutes] == ["undeclared"]
    assert not found.ok


def test_the_model_is_left_as_it_was():
    model = FAMILIES["llama-default"]().train()
    before, implementation = model(torch.tensor([[3, 4]])).logits, model.config._attn_implementation
    audit(model, length=16)
    assert model.training
    assert model.config._attn_implementation == implementation
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    torch.testing.assert_close(model(torch.tensor([[3, 4]])).logits, before)


@pytest.mark.parametrize("model", CHANGED)
def test_caps_and_sinks_raise_no_alarm_and_kernels_keep_to_the_cap(model):
    found = audit(CHANGED[model](), length=64, serving_modes=True)
    assert [(name, str(finding)) for name, finding in found.findings] == []
    kernels = torch.tensor([head.kernel for layer in found.layers for head in layer.heads])
    assert (kernels.abs().max() <= 0.002) == (model == "capped")


@pytest.mark.parametrize("seed", [0, 1])
def test_a_bias_that_hides_products_in_low_precision_is_no_other_scale(seed):
    torch.manual_seed(seed)
    config = transformers.BloomConfig(vocab_size=64, hidden_size=64, n_layer=2, n_head=8)
    model = transformers.BloomForCausalLM(config).eval().to(torch.bfloat16)
    assert audit(model, length=96, serving_modes=False).ok


def test_a_window_both_ways_that_just_holds_the_sequence_is_none():
    sizes = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    fields = {"vocab_size": 64, "local_attention": 64, "global_attn_every_n_layers": 2}
    fields |= dict.fromkeys(
        ("pad_token_id", "bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"), 0
    )
    model = build("ModernBert", "ForMaskedLM", **sizes, **fields)
    for length in (32, 33, 34):
        assert audit(model, length=length, serving_modes=False).ok
