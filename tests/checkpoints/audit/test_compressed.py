"""Layers that append compressed keys to those of the tokens."""

import pytest
import torch
import transformers
from tests.checkpoints.audit.museum_faults import of_tables
from tests.checkpoints.audit.zoo import DTYPES, in_precision, small_config

from spectrope.checkpoints.adapters import evaluating, recorded
from spectrope.checkpoints.audit import audit
from spectrope.core import unwatched

KINDS = ["compressed_sparse_attention", "heavily_compressed_attention"]
LENGTH = 300  # Longer than the window of 128, with 75 and 2 compressed keys.


def deepseek_v4(dtype="float32", **fields):
    config = small_config("deepseek_v4")
    config.layer_types, config.max_position_embeddings = KINDS, 512
    for name, value in fields.items():
        setattr(config, name, value)
    torch.manual_seed(0)
    return in_precision(transformers.DeepseekV4ForCausalLM(config).eval(), dtype)


def found(model):
    return audit(model, length=LENGTH, serving_modes=False, watch=unwatched)


@pytest.mark.parametrize("dtype", DTYPES)
def test_an_unmodified_model_matches_and_says_what_is_not_checked(dtype):
    result = found(deepseek_v4(dtype))
    assert result.ok, str(result)
    assert {str(one.effective.mask) for one in result.layers} == {"causal window 128"}
    told = "; ".join(result.unexercised)
    assert "compressed keys that follow those of the tokens (layers.0.self_attn, layers.1.self_attn)" in told
    assert "layers.0.self_attn.compressor.indexer" in told


def test_calls_hold_the_keys_of_the_tokens():
    model, calls = deepseek_v4(), []
    with evaluating(model), torch.no_grad(), recorded(model, calls.append):
        model(input_ids=torch.zeros(1, LENGTH, dtype=torch.long))
    assert len(calls) == 2
    assert {(call.q.shape[2], call.k.shape[2], call.allowed.shape[-1]) for call in calls} == {(LENGTH,) * 3}


def test_another_base_is_named(monkeypatch):
    model = deepseek_v4()
    of_tables(lambda frequencies: frequencies**0.5)(model, monkeypatch)
    records = found(model).records
    assert {(one.code, one.layer) for one in records} == {("SPE101", 0), ("SPE101", 1)}
    assert {one.impact.reason for one in records} == {"compressed keys follow those of the tokens"}


def test_another_window_is_named():
    narrow = deepseek_v4(sliding_window=64)
    assert found(narrow).ok
    narrow.whole_config = deepseek_v4().config
    records = found(narrow).records
    assert {(one.code, one.layer) for one in records} == {("SPE202", 0), ("SPE202", 1)}
    assert "causal window 128 declared, causal window 64 effective" in records[0].message
