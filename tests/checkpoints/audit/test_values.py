"""Values that carry position by declaration, and those that lack it."""

import pytest
import torch
from tests.checkpoints.audit.families import LENGTH
from transformers import RoFormerConfig, RoFormerModel

from spectrope.checkpoints.audit import audit


@pytest.fixture
def model():
    torch.manual_seed(0)
    shape = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
    return RoFormerModel(RoFormerConfig(vocab_size=64, rotary_value=True, **shape)).eval()


def attention(model, layer):
    return model.get_submodule(f"encoder.layer.{layer}.attention.self")


def test_values_that_turn_as_declared_match(model):
    assert audit(model, length=LENGTH).ok


def test_a_layer_whose_declared_turn_of_values_is_lost_is_named(model):
    attention(model, 1).rotary_value = False
    (record,) = audit(model, length=LENGTH).records
    assert (record.code, record.layer, record.head) == ("SPE112", 1, None)
    assert "varying with the position declared, the same at every position effective" in record.message


def test_a_head_whose_declared_turn_of_values_is_lost_is_named(model):
    layer = attention(model, 0)
    rotate = layer.apply_rotary_position_embeddings

    def partly(sinusoids, q, k, v):
        q, k, turned = rotate(sinusoids, q, k, v)
        turned[:, 1] = v[:, 1]
        return q, k, turned

    layer.apply_rotary_position_embeddings = partly
    (record,) = audit(model, length=LENGTH).records
    assert (record.code, record.layer, record.head) == ("SPE112", 0, 1)
