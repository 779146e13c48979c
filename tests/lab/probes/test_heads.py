"""What is captured is what attention worked with, and nothing stays behind."""

import pytest
import torch
from tests.lab.ablation.models import decoder, examples
from torch.testing import assert_close

from spectrope.attention.base import additive_mask
from spectrope.encodings.base import ENCODINGS
from spectrope.lab.probes.heads import capture_heads


def captured(model, batch):
    layers = []
    capture_heads(model, batch, layers.append)
    return layers


@pytest.mark.parametrize("name", ["rope", "alibi", "relative", "sinusoidal", "path", "cope"])
def test_outputs_follow_from_what_is_captured(name):
    """Softmax of the captured logits, applied to the values, is what the layer's heads put out."""
    model, batch = decoder(name), examples(5)
    outputs = []
    hooks = [
        block.heads.register_forward_hook(lambda heads, args, out: outputs.append((heads, args, out)))
        for block in model.blocks
    ]
    layers = captured(model, batch)
    for hook in hooks:
        hook.remove()
    assert [layer.layer for layer in layers] == [0, 1, 2]
    for layer, (heads, args, out) in zip(layers, outputs, strict=True):
        pattern = (layer.logits + additive_mask(layer.ctx, layer.causal)).softmax(-1)
        _, v = heads.context(*args[:2])
        assert_close(layer.encoding.read(pattern, v, layer.ctx), out)


def test_the_first_layer_by_hand():
    model, batch = decoder("rope"), examples(4)
    first = captured(model, batch)[0]
    states = model.blocks[0].attention_norm(model.tokens(batch.inputs))
    flat = states @ model.blocks[0].heads.qkv.weight.T + model.blocks[0].heads.qkv.bias
    q = flat[..., :24].unflatten(-1, (4, 6)).transpose(1, 2)
    assert_close(first.ctx.x_q, states)
    assert_close(first.ctx.q, q)
    turned = q.unflatten(-1, (3, 2))
    angle = torch.arange(12.0, dtype=torch.float64)[:, None] * 10000 ** (-torch.arange(3) / 3)
    real = turned[..., 0] * angle.cos() - turned[..., 1] * angle.sin()
    assert_close(first.rotated[0][..., ::2], real)
    assert first.bias is None
    assert_close(first.logits, first.rotated[0] @ first.rotated[1].mT / 6**0.5)


def test_a_bias_is_captured_where_there_is_one():
    layer = captured(decoder("alibi"), examples(4))[1]
    lag = torch.arange(12)[:, None] - torch.arange(12)
    assert_close(layer.bias[0, 0], -lag.abs().double() / 4)
    assert_close(layer.rotated[0], layer.ctx.q)
    assert_close(layer.logits, layer.ctx.q @ layer.ctx.k.mT / 6**0.5 + layer.bias)


def test_logits_that_do_not_factor_have_no_rotated_queries():
    assert not ENCODINGS["path"].factors.fget(decoder("path").encoding_of(0))
    layer = captured(decoder("path"), examples(4))[0]
    assert layer.rotated is None
    assert layer.bias is None


def test_keys_come_from_the_memory_where_there_is_one():
    model, batch = decoder("nope", memory="embeddings"), examples(4)
    for layer in captured(model, batch):
        assert_close(layer.ctx.x_k, model.tokens(batch.inputs))
        assert not torch.equal(layer.ctx.x_q, layer.ctx.x_k)


def test_hooks_are_undone_when_the_sink_fails():
    model = decoder()

    def refuse(layer):
        raise RuntimeError("full")

    with pytest.raises(RuntimeError, match="full"):
        capture_heads(model, examples(4), refuse)
    assert not any(block.heads._forward_pre_hooks for block in model.blocks)
    capture_heads(model, examples(4), lambda layer: None)
    assert not any(block.heads._forward_pre_hooks for block in model.blocks)


def test_nothing_derived_is_kept_unless_asked_for():
    layers = captured(decoder(), examples(4))
    assert not {"rotated", "bias", "logits"} & set(vars(layers[0]))
    _ = layers[0].rotated
    assert "rotated" in vars(layers[0])
    assert "logits" not in vars(layers[0])
    assert not layers[0].ctx.q.requires_grad
