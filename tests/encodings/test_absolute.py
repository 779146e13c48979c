"""Input encodings against Marian's code, and their refusals."""

import pytest
import torch
from torch.testing import assert_close
from transformers.models.gptj.modeling_gptj import create_sinusoidal_positions
from transformers.models.marian.modeling_marian import MarianSinusoidalPositionalEmbedding

from spectrope.core.errors import ConfigError, UnsupportedError
from spectrope.encodings.learned import Learned
from spectrope.encodings.random import RandomVectors
from spectrope.encodings.sinusoidal import Sinusoidal


def added(config, pos):
    return config.build().embed(torch.zeros(len(pos), pos.shape[1], config.d_model, dtype=torch.float64), pos)


def test_sinusoidal_halves_are_marians():
    pos = torch.arange(200)[None]
    expected = MarianSinusoidalPositionalEmbedding(200, 64).create_weight()
    assert_close(added(Sinusoidal.Config(d_model=64, layout="halves"), pos)[0].float(), expected)


def test_sinusoidal_interleaved_alternates_sine_and_cosine():
    pos = torch.arange(50)[None]
    waves = added(Sinusoidal.Config(d_model=32), pos)[0].float()
    sines, cosines = create_sinusoidal_positions(50, 32).chunk(2, -1)
    assert_close(waves[:, 0::2], sines)
    assert_close(waves[:, 1::2], cosines)


def test_sinusoidal_stays_exact_far_out():
    far = 1_000_000
    wave = added(Sinusoidal.Config(d_model=2), torch.tensor([[far]]))[0, 0]
    assert_close(wave, torch.tensor([far, far + torch.pi / 2], dtype=torch.float64).sin())


@pytest.mark.parametrize("config", [Learned.Config, RandomVectors.Config])
def test_tables_refuse_positions_outside(config):
    encoding = config(d_model=4, max_length=10).build()
    assert encoding.embed(torch.zeros(1, 10, 4), torch.arange(10)[None]).shape == (1, 10, 4)
    for outside in (10, -1, 9.5, -0.5):
        with pytest.raises(UnsupportedError, match=r"table of 10 rows.* raise max_length"):
            encoding.embed(torch.zeros(1, 1, 4), torch.tensor([[outside]]))


def test_fractional_positions_lie_between_rows():
    config = Learned.Config(d_model=4, max_length=10)
    encoding = config.build().double()
    between = encoding.embed(torch.zeros(1, 2, 4).double(), torch.tensor([[2.25, 9.0]]))[0]
    assert_close(between[0], 0.75 * encoding.table[2] + 0.25 * encoding.table[3])
    assert_close(between[1], encoding.table[9])


def test_learned_vectors_start_with_the_chosen_spread():
    table = Learned.Config(d_model=256, max_length=512, std=0.5).build().table
    assert table.std().item() == pytest.approx(0.5, rel=0.01)
    assert abs(table.mean().item()) < 0.01


def test_random_vectors_are_standard_normal_and_depend_on_the_seed_alone():
    torch.manual_seed(0)
    first = RandomVectors.Config(d_model=256, max_length=512, seed=3).build()
    torch.manual_seed(1)
    again = RandomVectors.Config(d_model=256, max_length=512, seed=3).build()
    assert torch.equal(first.table, again.table)
    assert first.table.var().item() == pytest.approx(1, rel=0.02)
    assert "table" in first.state_dict()
    assert not list(first.parameters())
    trained = RandomVectors.Config(d_model=256, max_length=512, seed=3, trainable=True).build()
    assert torch.equal(trained.table, first.table)
    assert trained.table.requires_grad


@pytest.mark.parametrize(
    ("config", "fields", "message"),
    [
        (Sinusoidal.Config, {"d_model": 7}, "d_model must be even and positive; got 7"),
        (Sinusoidal.Config, {"base": 0.0}, "base must be positive"),
        (Learned.Config, {"d_model": 0}, "d_model must be at least 1"),
        (Learned.Config, {"max_length": 0}, "max_length must be at least 1"),
        (Learned.Config, {"std": -1.0}, "std must be at least 0"),
        (RandomVectors.Config, {"d_model": 0}, "d_model must be at least 1"),
        (RandomVectors.Config, {"max_length": 0}, "max_length must be at least 1"),
    ],
)
def test_impossible_sizes_are_refused(config, fields, message):
    with pytest.raises(ConfigError, match=message):
        config(**fields)
