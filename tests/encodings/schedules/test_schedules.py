"""Frequency schedules against transformers' rotary embeddings, and by hand where those have none."""

import math

import pytest
import scipy.integrate
import torch
from torch.testing import assert_close
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.llama import modeling_llama

from spectrope.core.config import OneOf, to_dict
from spectrope.core.errors import ConfigError, UnsupportedError
from spectrope.encodings.base import Context, Scope, Tag
from spectrope.encodings.rope import RoPE
from spectrope.encodings.schedules.base import SCHEDULES, geometric
from spectrope.encodings.schedules.clex import CLEX
from spectrope.encodings.schedules.geometric import Geometric
from spectrope.encodings.schedules.learned import LearnedFrequencies
from spectrope.encodings.schedules.linear import Linear
from spectrope.encodings.schedules.llama3 import Llama3
from spectrope.encodings.schedules.longrope import LongRoPE
from spectrope.encodings.schedules.ntk import NTK, DynamicNTK
from spectrope.encodings.schedules.phases import FrozenPhases, ShuffledPhases
from spectrope.encodings.schedules.proportional import Proportional
from spectrope.encodings.schedules.yarn import YaRN

WIDTH, TRAINED = 64, 128
SHORT = tuple(1 + 0.01 * j for j in range(WIDTH // 2))
LONG = tuple(1 + 0.5 * j for j in range(WIDTH // 2))
YARN = {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": TRAINED}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}

# Ours, and the same as parameters of transformers' rotary embedding; its maximum is eight times as long.
PARITY = [
    (Geometric(base=500.0), {"rope_type": "default", "rope_theta": 500.0}),
    (Linear(factor=8.0), {"rope_type": "linear", "factor": 8.0}),
    (DynamicNTK(factor=3.0, trained_length=8 * TRAINED), {"rope_type": "dynamic", "factor": 3.0}),
    (YaRN(factor=8.0, trained_length=TRAINED), YARN),
    (YaRN(factor=8.0, trained_length=TRAINED, truncate=False), {**YARN, "truncate": False}),
    (YaRN(factor=8.0, trained_length=TRAINED, attention_factor=0.7), {**YARN, "attention_factor": 0.7}),
    (
        YaRN(factor=8.0, trained_length=TRAINED, beta_fast=16.0, beta_slow=2.0),
        {**YARN, "beta_fast": 16.0, "beta_slow": 2.0},
    ),
    (
        Llama3(base=10000.0, trained_length=TRAINED),
        {**LLAMA3, "original_max_position_embeddings": TRAINED},
    ),
    (
        LongRoPE(short_factors=SHORT, long_factors=LONG, factor=8.0, trained_length=TRAINED),
        {
            "rope_type": "longrope",
            "short_factor": list(SHORT),
            "long_factor": list(LONG),
            "factor": 8.0,
            "original_max_position_embeddings": TRAINED,
        },
    ),
    (Proportional(fraction=0.25), {"rope_type": "proportional", "partial_rotary_factor": 0.25}),
]
SCALED = (DynamicNTK, YaRN, Llama3)
IDS = [f"{ours.kind}-{i}" for i, (ours, _) in enumerate(PARITY)]


def transformers_rotary(parameters):
    config = LlamaConfig(
        hidden_size=2 * WIDTH,
        num_attention_heads=2,
        max_position_embeddings=8 * TRAINED,
        rope_parameters={"rope_theta": 10000.0, **parameters},
    )
    return modeling_llama.LlamaRotaryEmbedding(config)


@pytest.mark.parametrize(("dtype", "atol"), [(torch.float32, 1e-5), (torch.bfloat16, 0.1)])
@pytest.mark.parametrize("length", [1, 100, 600, 3000])
@pytest.mark.parametrize(("schedule", "parameters"), PARITY, ids=IDS)
def test_rotates_as_transformers_does(schedule, parameters, length, dtype, atol):
    generator = torch.Generator().manual_seed(length)
    x = torch.randn(1, 1, length, WIDTH, generator=generator).to(dtype)
    pos = torch.arange(length)[None]
    cos, sin = transformers_rotary(parameters)(x, pos)
    expected, _ = modeling_llama.apply_rotary_pos_emb(x, x, cos, sin)
    rope = RoPE.Config(head_dim=WIDTH, schedule=schedule, pairs="halves").build()
    rotated = rope.rotate(x, pos, "query")
    assert rotated.dtype is dtype
    assert_close(rotated, expected, atol=atol + 1e-6 * length, rtol=0)


@pytest.mark.parametrize("schedule", [DynamicNTK(trained_length=16), LongRoPE(trained_length=16)])
def test_each_sequence_of_a_batch_is_scaled_by_its_own_length(schedule):
    angles = schedule.build(8)
    short, long = torch.arange(12), torch.arange(12) * 3
    both = angles(torch.stack([short, long]))
    assert_close(both[0], angles(short[None])[0])
    assert_close(both[1], angles(long[None])[0])
    assert not torch.equal(both[1], Geometric().build(8)(long[None])[0])


def test_ntk_slows_the_lowest_frequency_by_the_factor_and_the_highest_not_at_all():
    ratio = NTK(factor=5.0).frequencies(WIDTH) / Geometric().frequencies(WIDTH)
    assert_close(ratio[[0, -1]], torch.tensor([1.0, 0.2], dtype=torch.float64))
    larger = 10000.0 * 5.0 ** (WIDTH / (WIDTH - 2))
    assert_close(NTK(factor=5.0).frequencies(WIDTH), Geometric(base=larger).frequencies(WIDTH))


def test_ntk_s_factor_is_not_rounded_to_float32():
    lowest = NTK(factor=1.1).frequencies(WIDTH)[-1] / Geometric().frequencies(WIDTH)[-1]
    assert lowest.item() == pytest.approx(1 / 1.1, rel=1e-14)


@pytest.mark.parametrize("factor", [2.0, 5.0])
def test_ntk_is_transformers_dynamic_one_held_at_one_length(factor):
    parameters = {"rope_type": "dynamic", "factor": 1.0}
    rotary = transformers_rotary(parameters)
    length = round(factor * rotary.config.max_position_embeddings)
    expected, _ = ROPE_INIT_FUNCTIONS["dynamic"](rotary.config, torch.device("cpu"), seq_len=length)
    assert_close(NTK(factor=factor).frequencies(WIDTH).float(), expected)


@pytest.mark.parametrize("schedule", [NTK(), DynamicNTK(trained_length=1)])
def test_a_single_pair_keeps_its_frequency_under_ntk(schedule):
    assert_close(schedule.build(2)(torch.tensor([[50]])), torch.tensor([[[50.0]]], dtype=torch.float64))


def test_yarn_within_a_tiny_trained_length_slows_all_but_the_first():
    slowed = YaRN(trained_length=1, factor=4.0).frequencies(8) / geometric(10000.0, 8)
    assert_close(slowed, torch.tensor([1, 0.25, 0.25, 0.25], dtype=torch.float64))


def test_learned_frequencies_start_geometric_and_learn():
    rope = RoPE.Config(head_dim=8, schedule=LearnedFrequencies()).build()
    x, pos = torch.randn(1, 1, 5, 8), torch.arange(5)[None]
    assert_close(rope.rotate(x, pos, "query"), RoPE.Config(head_dim=8).build().rotate(x, pos, "query"))
    assert (rope.tags >= {Tag.LEARNED, Tag.SHIFT_INVARIANT}, rope.scope) == (True, Scope.LAYER)
    rope, x = rope.double(), x.double()
    assert torch.autograd.gradcheck(lambda _: rope.rotate(x, pos, "query"), rope.angles.logarithms)


def test_shuffled_phases_are_those_of_rope_in_another_order():
    angles = ShuffledPhases(max_length=50, seed=1).build(8)
    pos = torch.arange(50)[None]
    order = angles(pos)[0, :, 0]  # the first frequency is one radian per position
    assert torch.equal(order.sort().values, torch.arange(50.0, dtype=torch.float64))
    assert not torch.equal(order, torch.arange(50.0, dtype=torch.float64))
    assert_close(angles(pos), Geometric().build(8)(order[None]))


def test_frozen_phases_are_uniform_and_depend_on_the_seed():
    turns = FrozenPhases(max_length=5000).build(8)(torch.arange(5000)[None]) / (2 * math.pi)
    sorted_turns = turns.flatten().sort().values
    uniform = (torch.arange(20_000) + 0.5) / 20_000
    assert float((sorted_turns - uniform).abs().max()) < 0.0138  # 0.999 quantile of Kolmogorov's statistic
    again, other = (FrozenPhases(max_length=5000, seed=s).build(8)(torch.arange(9)[None]) for s in (0, 1))
    assert torch.equal(again / (2 * math.pi), turns[:, :9])
    assert not torch.equal(again, other)


@pytest.mark.parametrize("kind", ["shuffled", "frozen"])
def test_tabled_phases_refuse_positions_outside_and_have_no_frequencies(kind):
    schedule = RoPE.Config(schedule=SCHEDULES[kind]()).fitted(max_length=10).schedule
    with pytest.raises(UnsupportedError, match="TabledAngles has a table of 10 rows"):
        schedule.build(8)(torch.tensor([[10]]))
    with pytest.raises(UnsupportedError, match="turns no pair at a steady frequency"):
        schedule.frequencies(8)


@pytest.mark.parametrize("kind", list(SCHEDULES))
def test_every_schedule_reads_back_equal_and_reaches_past_its_training(kind):
    schedule = SCHEDULES[kind]()
    assert OneOf(SCHEDULES).read(to_dict(schedule)) == schedule
    if kind in ("shuffled", "frozen"):
        return
    rope, pos = RoPE.Config(schedule=schedule).build(), torch.arange(0, 40_000, 1111)[None]
    x = torch.randn(1, 1, pos.shape[1], 16)
    assert torch.isfinite(rope.logits(Context(x, x, pos, pos))).all()


@pytest.mark.parametrize(
    ("schedule", "fields", "message"),
    [
        *((SCHEDULES[k], {"base": 0.0}, "base must be") for k in SCHEDULES if k != "frozen"),
        (Linear, {"factor": 0.0}, "factor must be positive"),
        (NTK, {"factor": 0.0}, "factor must be positive"),
        *((cls, {"factor": 0.5}, "factor must be at least 1") for cls in (*SCALED, LongRoPE)),
        *((cls, {"trained_length": 0}, "trained_length must be at least 1") for cls in SCALED),
        (LongRoPE, {"trained_length": 1}, "trained_length must be at least 2"),
        (LongRoPE, {"short_factors": (1.0, 0.0)}, "short_factors must be positive"),
        (LongRoPE, {"long_factors": (-1.0,)}, "long_factors must be positive"),
        (YaRN, {"beta_slow": 0.0}, "beta_slow must be positive"),
        (YaRN, {"beta_fast": 0.5}, "beta_fast must be at least beta_slow"),
        (Llama3, {"low_freq_factor": 0.0}, "low_freq_factor must be positive"),
        (Llama3, {"high_freq_factor": 1.0}, "high_freq_factor must be above low_freq_factor"),
        (Proportional, {"fraction": 1.5}, "fraction must be between 0 and 1"),
        (ShuffledPhases, {"max_length": 0}, "max_length must be at least 1"),
        (FrozenPhases, {"max_length": 0}, "max_length must be at least 1"),
    ],
)
def test_impossible_settings_are_refused(schedule, fields, message):
    with pytest.raises(ConfigError, match=message):
        schedule(**fields)


def test_a_factor_per_frequency_needs_as_many_as_there_are():
    with pytest.raises(ConfigError, match=r"LongRoPE.short_factors must be 1 or 4 numbers for width 8"):
        LongRoPE(short_factors=(1.0, 2.0)).build(8)


class TestCLEX:
    def test_it_starts_as_ntk_aware_scaling_by_twice_the_factor_less_one(self):
        for width in (8, 16):
            frequencies = CLEX(max_factor=4).build(width).frequencies()
            for number in range(4):
                exact = NTK(factor=2.0 * (number + 1) - 1).frequencies(width)
                assert_close(frequencies[number], exact, rtol=1e-5, atol=0)

    def test_the_equation_is_solved_as_scipy_solves_it(self):
        angles = CLEX(max_factor=3, hidden=2).build(8).double()
        with torch.no_grad():
            angles.down += 0.1 * torch.randn(angles.down.shape, generator=torch.Generator().manual_seed(0))

        def change(time, logarithms):
            return angles.derivative(time, torch.from_numpy(logarithms)).detach().numpy()

        solved = scipy.integrate.solve_ivp(
            change, (1, 3), angles.start.value.numpy(), t_eval=(1, 2, 3), rtol=1e-10, atol=1e-10
        )
        assert_close(angles.frequencies().log().detach(), torch.from_numpy(solved.y.T), rtol=1e-4, atol=1e-4)

    def test_each_sequence_takes_the_time_of_its_length(self):
        angles = CLEX(trained_length=4, max_factor=3).build(8)
        pos = torch.tensor([[0, 3], [0, 4], [0, 8], [0, 400]])
        times = (angles(pos)[:, 1] / pos[:, 1, None]).detach()
        assert_close(times, angles.frequencies()[[0, 1, 2, 2]].detach())

    def test_its_network_learns_from_sequences_beyond_the_trained_length_alone(self):
        for last, moved in ((3, False), (4, True)):
            angles = CLEX(trained_length=4).build(8)
            angles(torch.tensor([[0, last]])).sum().backward()
            assert bool(angles.down.grad.abs().max() > 0) == moved

    def test_a_head_of_one_pair_is_refused(self):
        with pytest.raises(ConfigError, match="NTK-aware scaling needs two pairs"):
            CLEX().build(2)


@pytest.mark.parametrize("factor", [0.0, -1.0, math.nan, math.inf])
def test_yarn_refuses_a_gain_that_leaves_no_logits(factor):
    with pytest.raises(ConfigError, match="attention_factor must be positive and finite"):
        YaRN(attention_factor=factor)
    with pytest.raises(ConfigError, match="factor must be"):
        YaRN(factor=factor)
