"""The decoder's fields do what they say: each divergence of the paper's code, seen from outside."""

from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from spectrope.core.config import config_hash, from_dict, to_dict
from spectrope.core.errors import ConfigError
from spectrope.core.noise import Noise
from spectrope.encodings.base import ENCODINGS
from spectrope.encodings.positions.interpolated import Interpolated
from spectrope.encodings.positions.random_subset import RandomSubset
from spectrope.encodings.rope import RoPE
from spectrope.encodings.schedules.longrope import LongRoPE
from spectrope.encodings.schedules.ntk import DynamicNTK
from spectrope.encodings.sum import Sum
from spectrope.lab.evaluation.score import predict
from spectrope.models.decoder import SITES, Decoder, DecoderConfig
from spectrope.tasks.base import Batch

SMALL = DecoderConfig(
    vocabulary=20, n_labels=7, max_length=12, d_model=16, n_layers=2, n_heads=4, head_dim=4, d_ff=24
)


def batch(n: int = 6, width: int = 12, seed: int = 0) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(3, width + 1, (n,), generator=generator)
    inputs = torch.randint(1, 20, (n, width), generator=generator)
    inputs[torch.arange(width) >= lengths[:, None]] = 0
    return Batch(inputs, torch.randint(0, 7, (n,), generator=generator), lengths)


def decoder(config: DecoderConfig, impl: str = "fastest") -> Decoder:
    return Decoder(config, impl).double()


def with_encoding(name: str, **changes: object) -> DecoderConfig:
    return replace(SMALL, encoding=ENCODINGS.config(name)(), **changes)


@pytest.mark.parametrize("name", list(ENCODINGS))
def test_every_encoding_trains_in_it(name):
    model = decoder(with_encoding(name))
    out = model(batch(), Noise(0.1, 0, torch.device("cpu")))
    assert out.shape == (6, 7)
    out.square().sum().backward()
    untouched = [n for n, p in model.named_parameters() if p.requires_grad and p.grad is None]
    assert not untouched


@pytest.mark.sampled
@pytest.mark.parametrize("name", list(ENCODINGS))
def test_padding_that_is_masked_changes_nothing(name):
    for causal in (True,) if name == "path" else (True, False):  # PaTH says nothing of the future
        model = decoder(with_encoding(name, causal=causal))
        data = batch()
        longest = int(data.lengths.max())
        assert_close(model(data), model(data[:].trimmed()))
        shortest = data[data.lengths.argsort()[:1]]
        assert int(shortest.lengths) < longest
        assert_close(model(shortest), model(shortest.trimmed()))


LENGTH_DEPENDENT = {
    "subset": {"positions": RandomSubset(longest=40)},
    "squeezed": {"positions": Interpolated(trained_length=5), "encoding": RoPE.Config()},
    "ntk": {"encoding": RoPE.Config(schedule=DynamicNTK(trained_length=4))},
    "longrope": {"encoding": Sum.Config(parts=(RoPE.Config(schedule=LongRoPE(trained_length=8)),))},
}


@pytest.mark.parametrize("change", LENGTH_DEPENDENT.values(), ids=LENGTH_DEPENDENT)
def test_padding_that_is_masked_stays_where_positions_depend_on_the_length(change):
    model, data = decoder(replace(with_encoding("sinusoidal"), **change)), batch()
    assert_close(predict(model, data, batch_size=6), predict(model, data, batch_size=1))
    assert not model.padding_is_inert
    assert model.ignores_padding
    assert not torch.allclose(model(data[:1]), model(data[:1].trimmed()))


def test_padding_that_is_visible_changes_the_output():
    model = decoder(replace(SMALL, padding="visible"))
    short = batch()[batch().lengths < 12]
    assert not model.padding_is_inert
    assert not torch.allclose(model(short), model(short.trimmed()))


@pytest.mark.parametrize("name", list(ENCODINGS))
def test_a_causal_layer_sees_the_past_alone(name):
    model = decoder(with_encoding(name))
    data = batch()
    changed = data.inputs.clone()
    changed[:, -1] = 1 + changed[:, -1] % 19
    streams = [model.begin(replace(data, inputs=inputs)) for inputs in (data.inputs, changed)]
    outs = [model.apply_block(0, x, stream) for x, stream in streams]
    assert_close(outs[0][:, :-1], outs[1][:, :-1])
    assert not torch.allclose(outs[0][:, -1], outs[1][:, -1])


def test_without_a_causal_mask_it_sees_the_future():
    model = decoder(replace(SMALL, causal=False))
    data = batch()[batch().lengths == 12] if (batch().lengths == 12).any() else batch(seed=1)
    data = replace(data, lengths=torch.full_like(data.lengths, 12))
    changed = data.inputs.clone()
    changed[:, -1] = 1 + changed[:, -1] % 19
    outs = [model.apply_block(0, *model.begin(replace(data, inputs=i))) for i in (data.inputs, changed)]
    assert not torch.allclose(outs[0][:, 0], outs[1][:, 0])


def test_keys_from_embeddings_ignore_what_layers_did():
    model = decoder(replace(SMALL, memory="embeddings"))
    x, stream = model.begin(batch())
    seen = []
    model.blocks[1].heads.register_forward_hook(lambda module, args, out: seen.append(args[1].memory))
    model.apply_block(1, model.apply_block(0, x, stream), stream)
    assert seen[0] is x
    hidden = decoder(SMALL)
    assert hidden.begin(batch())[1].memory is None
    assert not torch.allclose(hidden(batch()), model(batch()))


def test_as_many_classes_as_words():
    assert replace(SMALL, classes="vocabulary").n_outputs == 20
    assert replace(SMALL, classes="vocabulary").ignored_label == 0
    assert (SMALL.n_outputs, SMALL.ignored_label) == (7, None)
    counted = replace(SMALL, classes="vocabulary_with_zero")
    assert (counted.n_outputs, counted.ignored_label) == (20, None)


class Watcher(Noise):
    """Noise that drops nothing and tells the shapes that it is asked about."""

    def __init__(self) -> None:
        super().__init__(0.5, 0, torch.device("cpu"))
        self.shapes: list[tuple[int, ...]] = []

    def drop(self, x: torch.Tensor) -> torch.Tensor:
        self.shapes.append(tuple(x.shape))
        return x


@pytest.mark.parametrize(
    "sites", [SITES, ("pattern", "attention", "feed_forward"), ("hidden", "feed_forward"), ()]
)
def test_dropout_acts_at_its_sites_in_their_order(sites):
    n, t = batch().inputs.shape
    shapes = {
        "pattern": (n, 4, t, t),
        "attention": (n, t, 16),
        "hidden": (n, t, 24),
        "feed_forward": (n, t, 16),
    }
    watcher = Watcher()
    decoder(replace(SMALL, dropout_at=sites), "reference")(batch(), watcher)
    assert watcher.shapes == [shapes[site] for site in sites] * SMALL.n_layers


def test_sites_of_dropout_have_one_order_and_no_repetition():
    config = replace(SMALL, dropout_at=("feed_forward", "pattern", "pattern"))
    assert config.dropout_at == ("pattern", "feed_forward")
    assert from_dict(DecoderConfig, to_dict(config)) == config


def test_the_output_projection_may_have_no_bias():
    assert decoder(SMALL).blocks[0].out.bias is not None
    assert decoder(replace(SMALL, output_bias=False)).blocks[0].out.bias is None


def test_pooling_and_final_norm_matter():
    outs = [
        decoder(replace(SMALL, **change))(batch())
        for change in ({}, {"pooling": "last"}, {"final_norm": True})
    ]
    assert not torch.allclose(outs[0], outs[1])
    assert not torch.allclose(outs[0], outs[2])


def test_positions_of_a_batch_take_precedence():
    model = decoder(with_encoding("sinusoidal"))
    data = batch()
    index = torch.arange(12).expand(6, 12)
    assert_close(model(replace(data, positions=index)), model(data))
    assert not torch.allclose(model(replace(data, positions=index.flip(1))), model(data))


def test_noise_is_dropout_and_its_absence_is_not():
    model = decoder(SMALL)
    draws = [model(batch(), Noise(0.5, seed, torch.device("cpu"))) for seed in (0, 0, 1)]
    assert torch.equal(draws[0], draws[1])
    assert not torch.allclose(draws[0], draws[2])
    assert torch.equal(model(batch()), model(batch()))


def test_shared_encodings_are_stored_once():
    shared, layered = decoder(with_encoding("t5")), decoder(with_encoding("relative"))
    assert shared.encoding_of(0) is shared.encoding_of(1)
    assert layered.encoding_of(0) is not layered.encoding_of(1)
    pointers = [tensor.data_ptr() for tensor in shared.state_dict().values() if tensor.numel()]
    assert len(pointers) == len(set(pointers))


@pytest.mark.parametrize("name", list(ENCODINGS))
def test_configurations_round_trip_and_take_the_sizes_over(name):
    config = with_encoding(name)
    again = from_dict(DecoderConfig, to_dict(config))
    assert again == config
    assert config_hash(again) == config_hash(config)
    for field, size in config.sizes.items():
        assert getattr(config.encoding, field, size) == size


def test_every_encoding_names_another_decoder():
    hashes = {config_hash(with_encoding(name)) for name in ENCODINGS}
    assert len(hashes) == len(ENCODINGS)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"d_model": 0}, "d_model must be at least 1; got 0"),
        ({"dropout": 1.0}, "dropout must be a probability below 1; got 1.0"),
        ({"classes": "vocabulary", "n_labels": 21}, "vocabulary must be at least n_labels"),
    ],
)
def test_impossible_sizes_get_one_line(change, message):
    with pytest.raises(ConfigError, match=message):
        replace(SMALL, **change)


def test_a_model_agrees_over_implementations():
    data = batch()
    outs = [
        decoder(with_encoding("rope"), impl)(data) for impl in ("reference", "explicit", "fused", "fastest")
    ]
    for out in outs[1:]:
        assert_close(out, outs[0])
