"""R12: columns of latent attention's up-projections zeroed where a head was meant."""

import copy
from dataclasses import replace

import pytest
import torch
from tests.lab.ablation.models import LATENT, decoder, examples, whole_layers
from tests.lab.ablation.test_engine import CLOSE, engine, one_by_one
from torch.testing import assert_close

from spectrope.core.errors import UnsupportedError
from spectrope.lab.ablation.engine import correctness
from spectrope.lab.ablation.interventions import HeadAblation, single_heads
from spectrope.lab.ablation.protocols import PROTOCOLS
from spectrope.lab.ablation.screening import screen
from spectrope.lab.evaluation.score import predict

COLUMNS = "latent-columns"
RELEASED = {"causal": False, "final_norm": True, "feed_forward": "gelu", "output_bias": False}


@torch.no_grad()
def with_weights_zeroed(model, layer, head, width=6):
    """What the paper's code does: columns of the weights, numbered as if they were rows of the head."""
    model = copy.deepcopy(model)
    heads = model.blocks[layer].heads
    projections = [heads.key_value_up] + ([heads.query_up] if heads.compresses_queries else [])
    for projection in projections:
        projection.weight[:, head * width : (head + 1) * width] = 0
    return model


@pytest.mark.parametrize("query_latent", [13, None])
@pytest.mark.parametrize("fields", [{}, RELEASED], ids=["controlled", "released"])
def test_zeroed_columns_of_the_weights(fields, query_latent):
    model, data = decoder(attention=replace(LATENT, query_latent=query_latent), **fields), examples()
    variants = single_heads(model.config, COLUMNS)
    expected = [
        predict(with_weights_zeroed(model, layer, head), data) for layer in range(3) for head in range(4)
    ]
    assert_close(engine(model, data, variants), torch.stack(expected), **CLOSE)
    assert_close(one_by_one(model, data, variants), torch.stack(expected), **CLOSE)


def test_heads_beyond_the_width_of_the_latents_change_nothing():
    model, data = decoder(attention=LATENT), examples()
    intact, *changed = engine(model, data, [(), *single_heads(model.config, COLUMNS)])
    moved = torch.tensor([not torch.equal(logits, intact) for logits in changed]).view(3, 4)
    assert moved[:, :3].all()
    assert not moved[:, 3].any()  # 18 latents hold three heads of width 6


def test_columns_of_several_heads_and_other_fills_at_once():
    model, data = decoder(attention=LATENT), examples(8)
    variants = [
        *whole_layers(model.config, COLUMNS),
        (HeadAblation(0, 0, COLUMNS), HeadAblation(0, 2), HeadAblation(2, 1, COLUMNS)),
        (HeadAblation(0, 0, COLUMNS), HeadAblation(1, 1, "value-bias"), HeadAblation(1, 2, COLUMNS)),
        (HeadAblation(1, 1), HeadAblation(1, 2)),
    ]
    assert_close(engine(model, data, variants), one_by_one(model, data, variants), **CLOSE)


def test_the_released_protocol_leaves_only_empty_slices_behind():
    model, data = decoder(attention=LATENT), examples(40)
    found = {
        name: correctness(model, data, PROTOCOLS[name].variants(model.config))
        for name in ("R12", "released-mla")
    }
    assert torch.equal(found["R12"], found["released-mla"])


def test_other_attention_and_first_order_estimates_refuse():
    data = examples(4)
    with pytest.raises(UnsupportedError, match=r"needs attention 'mla'; this model has MultiHead"):
        engine(decoder(), data, [(HeadAblation(0, 0, COLUMNS),)])
    with pytest.raises(UnsupportedError, match=r"'latent-columns' changes all heads of a layer"):
        screen(decoder(attention=LATENT, dtype=torch.float32), data, fill=COLUMNS)
