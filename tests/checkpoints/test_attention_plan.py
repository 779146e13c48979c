"""Plans of a checkpoint's heads: layers that hide keys at the length asked about are computed exactly."""

import math

import pytest
import torch
from transformers import (
    AlbertConfig,
    AlbertModel,
    Lfm2Config,
    Lfm2ForCausalLM,
    Llama4ForCausalLM,
    Llama4TextConfig,
    MistralConfig,
    MistralForCausalLM,
)

from spectrope.checkpoints.attention_plan import plan_checkpoint
from spectrope.fast import PlanAim

SIZES = {
    "vocab_size": 64,
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
}


def mistral(window):
    return MistralForCausalLM(MistralConfig(**SIZES, sliding_window=window))


def llama4(chunk):
    return Llama4ForCausalLM(
        Llama4TextConfig(
            **SIZES,
            head_dim=8,
            intermediate_size_mlp=16,
            interleave_moe_layer_step=4,
            num_local_experts=2,
            attention_chunk_size=chunk,
            layer_types=["chunked_attention", "full_attention"],
            no_rope_layers=[1, 0],
        )
    )


def test_the_kind_of_a_layer_is_that_of_its_block():
    layers = {"num_hidden_layers": 2, "layer_types": ["conv", "full_attention"]}
    hybrid = Lfm2ForCausalLM(Lfm2Config(**SIZES | layers)).eval()
    plans = plan_checkpoint(hybrid, torch.randint(64, (2, 64)), PlanAim(length=65536))
    assert all(math.isfinite(head.reach_bound) for _, head in plans)


def test_outputs_of_half_precision_are_rounded_to_it():
    torch.manual_seed(0)
    model, ids = mistral(None).eval(), torch.randint(64, (2, 16))
    bounds = {}
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        plans = plan_checkpoint(model.to(dtype), ids, PlanAim(length=65536, tolerance=0.1))
        proofs = [head.certificate for _, head in plans]
        assert {proof.premises.setting.out for proof in proofs} == {dtype}
        bounds[dtype] = [proof.rounding_bound for proof in proofs]
    assert min(bounds[torch.bfloat16]) >= torch.finfo(torch.bfloat16).eps > max(bounds[torch.float32])


def test_a_tolerance_below_the_rounding_of_outputs_is_named():
    aim = PlanAim(length=64, tolerance=0.003)
    plans = plan_checkpoint(mistral(None).eval().bfloat16(), torch.randint(64, (2, 16)), aim)
    assert {head.reason for _, head in plans} == {"rounding outputs to bfloat16 alone may cost 0.003"}


def test_layers_that_share_a_module_are_counted_by_its_calls():
    config = AlbertConfig(vocab_size=64, embedding_size=16, hidden_size=16, num_hidden_layers=3)
    config.num_attention_heads, config.intermediate_size = 2, 16
    plans = plan_checkpoint(AlbertModel(config).eval(), torch.randint(64, (2, 16)), PlanAim(length=64))
    assert [(layer, head.head) for layer, head in plans] == [(i, h) for i in range(3) for h in range(2)]


@pytest.mark.parametrize(
    ("make", "seen"),
    [(lambda size: mistral(size), (False, False)), (lambda size: llama4(size), (False, True))],
    ids=["window", "chunks"],
)
def test_a_head_is_planned_only_where_it_sees_everything(make, seen):
    torch.manual_seed(0)
    ids, aim = torch.randint(64, (2, 64)), PlanAim(length=65536)
    for size, shown in ((128, seen), (1 << 17, (True, True))):
        plans = plan_checkpoint(make(size).eval(), ids, aim)
        assert {(layer, math.isfinite(head.reach_bound)) for layer, head in plans} == set(enumerate(shown))
