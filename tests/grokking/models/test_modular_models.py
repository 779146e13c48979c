"""The models skip work and change no result: parity with plain implementations on the same weights."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.testing import assert_close

from spectrope.core.config import config_hash, from_dict, to_dict
from spectrope.core.errors import ConfigError
from spectrope.encodings.alibi import ALiBi
from spectrope.encodings.base import ENCODINGS, Context, Encoding, EncodingConfig
from spectrope.encodings.learned import Learned
from spectrope.encodings.nope import NoPE
from spectrope.encodings.per_layer import PerLayer
from spectrope.encodings.rope import RoPE
from spectrope.encodings.schedules.longrope import LongRoPE
from spectrope.encodings.schedules.ntk import DynamicNTK
from spectrope.grokking.models.base import ModularModel
from spectrope.grokking.models.layer import is_positional
from spectrope.grokking.models.mlp import ModularMLP
from spectrope.grokking.models.transformer import ModularTransformer
from spectrope.grokking.tasks.modular import ModularConfig

TASK = ModularConfig(p=7, offset=3)
SIZES = {"d_model": 8, "n_heads": 2, "head_dim": 4, "d_mlp": 12}
PAIRS = TASK.build().pairs()


def transformer(
    n_layers: int = 2, task: ModularConfig = TASK, **changes: EncodingConfig
) -> ModularTransformer:
    config = ModularTransformer.Config(n_layers=n_layers, **SIZES, **changes)
    model = config.build(task, 0).double()
    assert isinstance(model, ModularTransformer)
    with torch.no_grad():  # biases and tables that start at zero would hide mistakes
        for number, parameter in enumerate(model.parameters()):
            noise = torch.Generator().manual_seed(number)
            parameter += 0.1 * torch.randn(parameter.shape, generator=noise, dtype=parameter.dtype)
    return model


def plain(model: ModularTransformer, a: Tensor, b: Tensor) -> Tensor:
    """Every position of every layer, by the encoding's own definition of its logits."""
    pos = torch.arange(3)[None]
    equals = torch.full_like(a, TASK.vocabulary - 1)
    x = model.tokens[torch.stack([a, b + TASK.offset, equals], 1)]
    for number, layer in enumerate(model.layers):
        encoding = model.encodings[min(number, len(model.encodings) - 1)]
        assert isinstance(encoding, Encoding)
        x = encoding.embed(x, pos) if number == 0 else x
        q, k, v = (
            (x @ w.T).unflatten(-1, (layer.n_heads, -1)).transpose(1, 2) for w in layer.qkv.weight.chunk(3)
        )
        ctx = Context(q, k, pos, pos, x, x)
        hidden = torch.ones(3, 3, dtype=torch.bool).triu(1)
        pattern = encoding.logits(ctx).masked_fill(hidden, -torch.inf).softmax(-1)
        seen = encoding.read(pattern, v, ctx).transpose(1, 2).flatten(2)
        x = x + seen @ layer.out.weight.T
        inner = (x @ layer.up.weight.T + layer.up.bias).relu()
        x = x + inner @ layer.down.weight.T + layer.down.bias
    return x[:, 2] @ model.unembed.weight.T


def gradients(model: nn.Module, logits: Tensor) -> list[Tensor]:
    model.zero_grad()
    F.cross_entropy(logits, PAIRS.labels).backward()
    return [torch.zeros_like(p) if p.grad is None else p.grad for p in model.parameters()]


def assert_parity(model: ModularTransformer) -> None:
    ours, theirs = model(PAIRS.a, PAIRS.b), plain(model, PAIRS.a, PAIRS.b)
    assert_close(ours, theirs, rtol=1e-9, atol=1e-10)
    assert_close(gradients(model, ours), gradients(model, theirs), rtol=1e-8, atol=1e-10)


FITTING = [name for name in ENCODINGS if name != "fope"]


@pytest.mark.sampled
@pytest.mark.parametrize("name", FITTING)
def test_any_encoding_gives_what_a_plain_transformer_gives(name):
    assert_parity(transformer(encoding=ENCODINGS.config(name)()))


@pytest.mark.parametrize("n_layers", [1, 2, 3])
@pytest.mark.parametrize("name", ["learned", "rope", "cope", "path"])
def test_any_depth_gives_what_a_plain_transformer_gives(n_layers, name):
    assert_parity(transformer(n_layers, encoding=ENCODINGS.config(name)()))


def test_an_encoding_that_three_tokens_are_too_few_for_says_so():
    with pytest.raises(ConfigError, match=r"FoPE.Config.max_length must be at least 7, one turn .*; got 3"):
        ModularTransformer.Config(encoding=ENCODINGS.config("fope")())


def test_layers_may_have_encodings_of_their_own():
    mixture = PerLayer.Config(layers=(ALiBi.Config(), RoPE.Config()))
    model = transformer(encoding=mixture)
    assert len(model.encodings) == 2
    assert_parity(model)


@pytest.mark.parametrize("schedule", [LongRoPE(trained_length=2), DynamicNTK(trained_length=2)])
def test_what_depends_on_the_length_gives_what_a_plain_transformer_gives(schedule):
    model = transformer(encoding=RoPE.Config(schedule=schedule))
    assert not is_positional(model.encodings[0])
    assert_parity(model)


def test_what_depends_on_content_does_not_take_the_tables():
    taken = {
        name for name in FITTING if is_positional(transformer(encoding=ENCODINGS.config(name)()).encodings[0])
    }
    assert {"learned", "rope", "alibi", "t5", "nope", "sinusoidal"} <= taken
    assert taken.isdisjoint({"cope", "path", "blend", "shaw", "transformer_xl", "deberta"})


def test_the_attention_itself_is_that_of_the_paper():
    model = transformer(1, encoding=NoPE.Config())
    a, b = torch.tensor([2]), torch.tensor([5])
    x = model.tokens[[2, 5 + 3, 10]]
    query, keys, values = (w.unflatten(0, (2, 4)) for w in model.layers[0].qkv.weight.chunk(3))
    q = torch.einsum("hdc,c->hd", query, x[2])
    weights = torch.softmax(torch.einsum("hd,hdc,tc->ht", q, keys, x) / math.sqrt(4), -1)
    seen = torch.einsum("ht,hdc,tc->hd", weights, values, x).flatten()
    x = x[2] + model.layers[0].out.weight @ seen
    assert_close(model.represent(a, b)[0], x + model.layers[0].down(model.layers[0].up(x).relu()))


@pytest.mark.parametrize("embedding", ["learned", "one_hot"])
def test_the_perceptron_gives_what_a_plain_one_gives(embedding):
    model = ModularMLP.Config(d_model=6, hidden=10, embedding=embedding).build(TASK, 0).double()
    assert isinstance(model, ModularMLP)
    if embedding == "learned":
        x = torch.cat([model.tokens[PAIRS.a], model.tokens[PAIRS.b + TASK.offset]], 1)
    else:
        x = torch.cat([F.one_hot(PAIRS.a, 7), F.one_hot(PAIRS.b, 7)], 1).double()
    theirs = model.last(model.second(model.first(x).relu()).relu())
    ours = model(PAIRS.a, PAIRS.b)
    assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
    assert_close(gradients(model, ours), gradients(model, theirs), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("make", [transformer, lambda task: ModularMLP.Config(d_model=8).build(task, 0)])
@pytest.mark.parametrize("offset", [0, 3, 7])
def test_operands_share_their_tokens_as_far_as_the_offset_says(make, offset):
    model: ModularModel = make(task=ModularConfig(p=7, offset=offset))
    of_a, of_b = model.operands()
    assert of_a.shape == of_b.shape == (7, 8)
    shared = [(a, b) for a in range(7) for b in range(7) if of_a[a].equal(of_b[b])]
    assert shared == [(a, a - offset) for a in range(offset, 7)]


def test_without_embeddings_the_first_hidden_layer_stands_in_for_them():
    model = ModularMLP.Config(hidden=10, embedding="one_hot").build(TASK, 0)
    assert isinstance(model, ModularMLP)
    of_a, of_b = model.operands()
    assert_close(of_a[2] + of_b[5] + model.first.bias, model.first(torch.eye(14)[2] + torch.eye(14)[12]))


def test_weights_depend_on_the_seed_alone_and_start_as_stated():
    config = ModularTransformer.Config()
    one, same, other = (config.build(ModularConfig(), seed) for seed in (0, 0, 1))
    assert isinstance(one, ModularTransformer)
    assert all(x.equal(y) for x, y in zip(one.parameters(), same.parameters(), strict=True))
    for name, (x, y) in {n: (p, other.get_parameter(n)) for n, p in one.named_parameters()}.items():
        if name.endswith("bias"):
            assert x.count_nonzero() == 0
        else:
            assert not x.equal(y)
            assert x.std().item() * 128**0.5 == pytest.approx(1, abs=5 / x.numel() ** 0.5)


def test_configurations_round_trip_and_take_the_encoding_into_their_sizes():
    config = ModularTransformer.Config(encoding=RoPE.Config(), head_dim=8)
    assert config.encoding == RoPE.Config(head_dim=8)
    assert (
        from_dict(ModularTransformer.Config, {k: v for k, v in to_dict(config).items() if k != "kind"})
        == config
    )
    assert isinstance(ModularTransformer.Config().encoding, Learned.Config)
    assert len({config_hash(c) for c in (config, ModularTransformer.Config(), ModularMLP.Config())}) == 3


@pytest.mark.parametrize("config", [ModularTransformer.Config, ModularMLP.Config])
def test_sizes_are_positive(config):
    with pytest.raises(ConfigError, match="d_model must be at least 1; got 0"):
        config(d_model=0)
