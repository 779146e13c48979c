"""Feed-forward layers that stand still, where nothing depends on them."""

import contextlib

import pytest
import torch
from tests.checkpoints.audit.families import FAMILIES
from torch import nn

from spectrope.checkpoints.adapters import Inputs, evaluating
from spectrope.checkpoints.adapters.hooks import idle_feed_forwards, idle_head
from spectrope.checkpoints.probes import constant_content as probe
from spectrope.checkpoints.probes.constant_content import attention_modules, constant_content


def kernels(model):
    received = []
    with evaluating(model):
        constant_content(model, attention_modules(model), 16, received.append)
    calls = [(one.call.q, one.call.k, one.call.allowed, one.call.bias, one.call.logits) for one in received]
    return {
        one.call.module: [x for x in (*call, *one.sources) if x is not None]
        for one, call in zip(received, calls, strict=True)
    }


@pytest.mark.sampled
@pytest.mark.parametrize("family", FAMILIES)
def test_kernels_of_constant_content_are_the_same_bit_for_bit(family, monkeypatch):
    model = FAMILIES[family]()
    quick = kernels(model)
    monkeypatch.setattr(probe, "idle_feed_forwards", lambda *_: contextlib.nullcontext())
    torch.testing.assert_close(quick, kernels(model), rtol=0, atol=0)


def test_most_of_a_llama_stands_still_and_runs_again_afterwards():
    model = FAMILIES["llama-default"]().eval()
    inputs = Inputs(batch=2, length=6).of(model)
    before = model(**inputs).logits
    tokens = []
    hook = model.model.layers[0].mlp.gate_proj.register_forward_hook(
        lambda _, args, __: tokens.append(args[0].shape[:2].numel())
    )
    with idle_feed_forwards(model, attention_modules(model)):
        assert not model.model.layers[0].mlp(torch.ones(2, 6, model.config.hidden_size)).any()
        model(**inputs)
    assert tokens[1:] == [1]  # After those of `attention_modules`.
    hook.remove()
    assert torch.equal(model(**inputs).logits, before)


@pytest.mark.parametrize(
    ("family", "widens"),
    [("bert", "intermediate.dense"), ("bloom", "mlp.dense_h_to_4h"), ("mpt", "ffn.up_proj")],
)
def test_a_layer_that_adds_the_residual_itself_or_has_two_modules_stands_still(family, widens):
    model = FAMILIES[family]().eval()
    inputs = Inputs(batch=2, length=6).of(model)
    attending = attention_modules(model)
    before = model(**inputs)[0]
    first = next(name for name, _ in model.named_modules() if name.endswith(widens))
    tokens = []
    hook = model.get_submodule(first).register_forward_hook(
        lambda _, args, __: tokens.append(args[0].shape[:2].numel())
    )
    with idle_feed_forwards(model, attending):
        model(**inputs)
    assert set(tokens) == {1}
    hook.remove()
    assert torch.equal(model(**inputs)[0], before)


class Halves(nn.Module):
    """Two modules of BERT's names, of which the second takes what the first puts out in other ways."""

    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.intermediate, self.output = nn.Linear(8, 16), nn.Bilinear(16, 8, 8)

    def forward(self, x):
        wide = self.intermediate(x)
        return self.output(wide, x), self.output(2 * wide, x), self.intermediate(x[0])


def test_halves_that_are_used_otherwise_run_in_full():
    block, x = Halves(), torch.randn(2, 3, 8)
    _, doubled, single = block(x)
    with idle_feed_forwards(block, ["attention"]):
        passed, twice, alone = block(x)
    assert torch.equal(passed, x)
    torch.testing.assert_close(twice, block.output(torch.zeros(2, 3, 16), x))
    torch.testing.assert_close(alone, single)
    torch.testing.assert_close(block(x)[1], doubled)


class Convolved(nn.Module):
    """SqueezeBERT's halves, which take the width before the positions."""

    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.intermediate, self.output = nn.Conv1d(8, 16, 1), nn.Bilinear(3, 3, 3)

    def forward(self, x):
        return self.intermediate(x)


def test_halves_that_convolve_run_in_full():
    block, x = Convolved(), torch.randn(2, 8, 3)
    whole = block(x)
    with idle_feed_forwards(block, ["attention"]):
        assert torch.equal(block(x), whole)


def test_a_head_that_stands_still_gives_every_token_the_same_logit():
    model = FAMILIES["gpt2"]().eval()
    inputs = Inputs(batch=1, length=4).of(model)
    before = model(**inputs).logits
    with idle_head(model):
        assert not model(**inputs).logits.any()
    assert torch.equal(model(**inputs).logits, before)
    with idle_head(model.transformer):
        assert model.transformer(**inputs).last_hidden_state.any()


class Block(nn.Module):
    """Attention whose bias a small network computes, and a layer that routes its tokens."""

    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.attention.mlp = nn.Linear(8, 8)
        self.mlp = nn.Linear(8, 4)
        self.ffn = nn.Identity()
        self.ffn.forward = lambda x: (x + 1, x)

    def forward(self, x):
        return self.attention.mlp(x), self.mlp(x), self.ffn(x)[0]


def test_modules_of_another_shape_and_those_of_the_attention_run_in_full():
    block, x = Block(), torch.randn(2, 3, 8)
    with idle_feed_forwards(block, ["attention"]):
        torch.testing.assert_close(block(x), (block.attention.mlp(x), block.mlp(x), x + 1))
    torch.testing.assert_close(block(x), (block.attention.mlp(x), block.mlp(x), x + 1))
