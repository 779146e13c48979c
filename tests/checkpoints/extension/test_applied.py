"""Which coordinates layers turn, in families that keep their pairs in other orders than their cosines."""

from dataclasses import replace

import pytest
import torch
from transformers import (
    CohereConfig,
    CohereForCausalLM,
    DeepseekV3Config,
    DeepseekV3ForCausalLM,
    Glm4Config,
    Glm4ForCausalLM,
    GlmConfig,
    GlmForCausalLM,
    GptOssConfig,
    GptOssForCausalLM,
    HunYuanDenseV1Config,
    HunYuanDenseV1ForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    SmolLM3Config,
    SmolLM3ForCausalLM,
)

from spectrope.checkpoints.atlas import atlas_checkpoint
from spectrope.checkpoints.audit.layout import Layout
from spectrope.checkpoints.extension.applied import applied_rotations
from spectrope.checkpoints.extension.bands import head_bands
from spectrope.checkpoints.extension.extend import extend_checkpoint
from spectrope.checkpoints.extension.rotations import rotations_of
from spectrope.checkpoints.probes.constant_content import attention_modules
from spectrope.core.errors import UnsupportedError
from spectrope.lab import AtlasSettings

WIDTH, FASTEST = 16, 5  # Of a head; the tokens that stand for anything else begin there.
SIZES = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
}


def glm(kind=GlmConfig, model=GlmForCausalLM):
    return model(kind(**SIZES, head_dim=WIDTH, partial_rotary_factor=0.5))


def deepseek():
    sizes = SIZES | {"num_key_value_heads": 2}
    latent = {"q_lora_rank": None, "kv_lora_rank": 8, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8}
    return DeepseekV3ForCausalLM(DeepseekV3Config(**sizes, **latent, v_head_dim=8, first_k_dense_replace=2))


def gpt_oss():
    """A model whose rotary module returns every cosine once."""
    plain = {"rope_type": "default", "rope_theta": 1e4}
    experts = {"num_local_experts": 2, "num_experts_per_tok": 1}
    return GptOssForCausalLM(GptOssConfig(**SIZES, **experts, head_dim=WIDTH, rope_parameters=plain))


def mixed():
    """A model whose second layer turns nothing."""
    return SmolLM3ForCausalLM(SmolLM3Config(**SIZES, no_rope_layers=[1, 0]))


MODELS = {
    "llama": (lambda: LlamaForCausalLM(LlamaConfig(**SIZES)), Layout("halves", 0, WIDTH)),
    "cohere": (lambda: CohereForCausalLM(CohereConfig(**SIZES)), Layout("adjacent", 0, WIDTH)),
    "glm": (glm, Layout("adjacent", 0, WIDTH // 2)),
    "glm4": (lambda: glm(Glm4Config, Glm4ForCausalLM), Layout("adjacent", 0, WIDTH // 2)),
    "gpt_oss": (gpt_oss, Layout("halves", 0, WIDTH)),
    "deepseek_v3": (deepseek, Layout("halves", 8, 8)),
}


def made(make):
    torch.manual_seed(0)
    return make().eval()


def found(model, rotations=None):
    return applied_rotations(model, attention_modules(model), rotations or rotations_of(model))


@pytest.mark.parametrize("family", MODELS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_layout_is_what_the_kernel_receives(family, dtype):
    make, layout = MODELS[family]
    rotations = found(made(make).to(dtype)).values()
    assert [one.layout for one in rotations] == [layout] * 2


def test_a_layer_that_turns_nothing_has_no_pairs_that_leave():
    model = made(mixed)
    first, second = found(model).values()
    assert (first.layout, second) == (Layout("halves", 0, WIDTH), None)
    told = extend_checkpoint(model, length=32)
    bands = {row["layer"]: row for row in told.bands.iter_rows(named=True)}
    assert (bands[0]["pairs"], bands[1]["pairs"]) == (8, 0)
    assert 0 < bands[0]["share"] <= 1
    assert bands[1]["share"] == 0
    first, second = (line for line in told.parts() if isinstance(line, str))
    assert first.startswith("layer 0: ")
    assert " of 8 pairs complete less than one turn in 32 positions; " in first
    assert second == "layer 1: nothing turns, so that no angle is new at any length."


def test_the_frequencies_are_those_of_the_module_that_turned_them():
    model = made(MODELS["llama"][0])
    (own,) = rotations_of(model)
    other = replace(own, name="other", frequencies=own.frequencies / 3)
    assert {one.rotary.name for one in found(model, [other, own]).values()} == {own.name}
    with pytest.raises(UnsupportedError, match=r"does not turn pairs .* by the frequencies of other alone"):
        found(model, [other])


@pytest.mark.parametrize("family", ["glm", "deepseek_v3"])
def test_shares_are_those_of_the_pairs_that_turn(family):
    """Only pair 1 has energy, and completes turns or does not by the length that is asked about."""
    model = made(MODELS[family][0])
    only_pair_1(model, family)
    ids = torch.randint(FASTEST, 60, (1, 32), generator=torch.Generator().manual_seed(1))
    frequency = float(rotations_of(model)[0].frequencies[1])
    turn = int(6.2832 / frequency)
    assert set(head_bands(model, ids[:, :8], turn - 2, 2.0)["share"].round(5)) == {1.0}
    assert set(head_bands(model, ids, turn + 2, 2.0)["share"].round(5)) == {0.0}


def test_a_head_changed_behind_its_rotation_is_scored_without_shares():
    model = made(lambda: HunYuanDenseV1ForCausalLM(HunYuanDenseV1Config(**SIZES, head_dim=WIDTH)))
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.query_layernorm.weight.uniform_(0.5, 2)
    with pytest.raises(UnsupportedError, match="does not turn pairs of its first or last coordinates"):
        extend_checkpoint(model, 2.0, length=16)
    text = torch.randint(FASTEST, 60, (70,), generator=torch.Generator().manual_seed(1))
    found = extend_checkpoint(model, 2.0, [text], length=16, methods=("none",), judge="none", needles=0)
    assert found.bands.is_empty()
    assert found.to_frame()["method"].to_list() == ["window", "none"]
    assert "Shares of logits are not told" in str(found)


@pytest.mark.parametrize("family", ["glm", "deepseek_v3", "gpt_oss"])
def test_the_atlas_finds_the_band_that_matters(family):
    model = made(MODELS[family][0])
    only_pair_1(model, family)
    pairs = MODELS[family][1].width // 2
    settings = AtlasSettings(bands=pairs)
    cells = atlas_checkpoint(model, "induction", examples=4, length=24, settings=settings).cells
    removed = cells.filter(intervention="remove-band")
    changes = {band: removed.filter(band=band)["loss_increase"].abs().max() for band in range(pairs)}
    assert changes[1] > 1e-5
    others = [change for band, change in changes.items() if band != 1]
    assert others == pytest.approx([0] * (pairs - 1), abs=1e-6)


@torch.no_grad()
def only_pair_1(model, family):
    """Keep the second pair of queries, and make it large."""
    for layer in model.model.layers:
        weight = layer.self_attn.q_proj.weight
        kept = torch.zeros(2, WIDTH, 1)
        # DeepSeek's projections have neighbours as pairs, behind the coordinates that do not turn.
        kept[:, {"deepseek_v3": (10, 11), "gpt_oss": (1, 9)}.get(family, (2, 3))] = 30
        weight.mul_(kept.flatten(0, 1))
        if layer.self_attn.q_proj.bias is not None:
            layer.self_attn.q_proj.bias.zero_()
