"""Rotation of coordinate pairs: against Llama's and GPT-J's code, and by its laws."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close
from transformers.models.gptj import modeling_gptj
from transformers.models.llama import modeling_llama

from spectrope.core.errors import ConfigError
from spectrope.encodings.base import Context
from spectrope.encodings.parts import Constant, complex_pairs, multiply_pairs
from spectrope.encodings.rope import RoPE
from spectrope.encodings.schedules.geometric import Geometric

PAIRS = ["adjacent", "halves"]
WIDTHS = st.integers(1, 12).map(lambda m: 2 * m)
POSITIONS = st.floats(-1e4, 1e4)


def vectors(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def at(position):
    return torch.tensor([[position]], dtype=torch.float64)


def test_halves_are_llamas_rotation():
    q, k, pos = vectors(2, 3, 50, 16), vectors(2, 3, 50, 16, seed=1), torch.arange(50)[None]
    angles = (pos[..., None] * Geometric().frequencies(16)).repeat(1, 1, 2)
    expected = modeling_llama.apply_rotary_pos_emb(q, k, angles.cos(), angles.sin())
    rope = RoPE.Config(pairs="halves").build()
    assert_close(rope.rotate(q, pos, "query"), expected[0])
    assert_close(rope.rotate(k, pos, "key"), expected[1])


def test_adjacent_pairs_are_gptjs_rotation():
    x, pos = vectors(2, 3, 50, 16), torch.arange(50)[None]
    sin, cos = modeling_gptj.create_sinusoidal_positions(50, 16).double().chunk(2, -1)
    expected = modeling_gptj.apply_rotary_pos_emb(x.transpose(1, 2), sin[None], cos[None]).transpose(1, 2)
    assert_close(RoPE.Config().build().rotate(x, pos, "query"), expected, atol=1e-5, rtol=1e-5)


@given(width=WIDTHS, p=POSITIONS, r=POSITIONS, seed=st.integers(0, 99), pairs=st.sampled_from(PAIRS))
def test_rotations_form_a_group(width, p, r, seed, pairs):
    rope, x = RoPE.Config(head_dim=width, pairs=pairs).build(), vectors(1, 1, 1, width, seed=seed)

    def turn(value, position):
        return rope.rotate(value, at(position), "query")

    assert_close(turn(turn(x, p), r), turn(x, p + r))
    assert_close(turn(turn(x, p), -p), x)
    assert torch.equal(turn(x, 0.0), x)


@given(width=WIDTHS, p=POSITIONS, seed=st.integers(0, 99), pairs=st.sampled_from(PAIRS))
def test_rotations_keep_norms(width, p, seed, pairs):
    x = vectors(2, 1, 1, width, seed=seed)
    turned = RoPE.Config(head_dim=width, pairs=pairs).build().rotate(x, at(p), "key")
    assert_close(turned.norm(dim=-1), x.norm(dim=-1))


@given(lag=POSITIONS, shift=POSITIONS, seed=st.integers(0, 99), pairs=st.sampled_from(PAIRS))
def test_logits_depend_on_the_lag_alone(lag, shift, seed, pairs):
    rope = RoPE.Config(head_dim=8, pairs=pairs).build()
    q, k = vectors(2, 1, 1, 1, 8, seed=seed)
    here = rope.logits(Context(q, k, at(lag), at(0.0)))
    there = rope.logits(Context(q, k, at(lag + shift), at(shift)))
    assert_close(here, there)


def test_logits_are_the_sum_over_frequencies():
    q, k, lag = vectors(1, 1, 1, 16), vectors(1, 1, 1, 16, seed=1), 7
    pairs = [torch.view_as_complex(x.reshape(-1, 2)) for x in (q, k)]
    waves = torch.exp(1j * lag * Geometric().frequencies(16))
    expected = (pairs[0] * pairs[1].conj() * waves).sum().real / 4
    assert_close(RoPE.Config().build().logits(Context(q, k, at(lag + 2), at(2)))[0, 0, 0, 0], expected)


@pytest.mark.parametrize("pairs", PAIRS)
def test_float32_keeps_the_lag_a_million_tokens_out(pairs):
    rope = RoPE.Config(pairs=pairs).build()
    q, k, pos = vectors(1, 1, 20, 16).float(), vectors(1, 1, 20, 16, seed=1).float(), torch.arange(20)[None]
    near = rope.logits(Context(q, k, pos, pos))
    far = rope.logits(Context(q, k, pos + 1_000_000, pos + 1_000_000))
    assert_close(near, far, atol=2e-6, rtol=0)


@pytest.mark.parametrize("pairs", PAIRS)
def test_angles_stay_exact_when_the_model_is_cast_down(pairs):
    x, pos = vectors(1, 1, 4, 16), torch.tensor([[1000, 1001, 5000, 9000]])
    exact = RoPE.Config(pairs=pairs).build().rotate(x, pos, "query")
    low = RoPE.Config(pairs=pairs).build().bfloat16().rotate(x.bfloat16(), pos, "query")
    assert_close(low.double(), exact, atol=0.03, rtol=0)
    assert_close(RoPE.Config(pairs=pairs).build().half().rotate(x, pos, "query"), exact)


def test_constants_keep_dtype_and_value_and_follow_the_device():
    constant = Constant(torch.tensor([1.0 / 3], dtype=torch.float64))
    assert constant.half().value.dtype is torch.float64
    assert constant.value.item() == 1.0 / 3
    assert constant.to("meta").value.device.type == "meta"
    assert not constant.state_dict()


@pytest.mark.parametrize("pairs", PAIRS)
@pytest.mark.parametrize("cut", [slice(0, 6), slice(1, 7)])
def test_views_at_odd_offsets_and_strides_are_rotated_alike(pairs, cut):
    rows = vectors(2, 3, 4, 7)
    factor = torch.polar(torch.ones(1, 1, 4, 3).double(), vectors(1, 1, 4, 3))
    view = rows[..., cut]
    assert_close(multiply_pairs(view, factor, pairs), multiply_pairs(view.clone(), factor, pairs))


@pytest.mark.parametrize("pairs", PAIRS)
def test_complex_pairs_are_what_a_rotation_multiplies(pairs):
    rows, factor = vectors(2, 3, 4, 6), torch.polar(torch.ones(4, 3).double(), vectors(4, 3))
    turned = multiply_pairs(rows, factor[None, None], pairs)
    assert_close(complex_pairs(turned, pairs), complex_pairs(rows, pairs) * factor)
    second = 1 if pairs == "adjacent" else 3
    assert_close(complex_pairs(rows, pairs)[..., 0], torch.complex(rows[..., 0], rows[..., second]))
    with pytest.raises(ConfigError, match="even width to pair coordinates; got 5"):
        complex_pairs(rows[..., :5], pairs)


@pytest.mark.parametrize("pairs", PAIRS)
def test_gradient_is_the_inverse_rotation(pairs):
    rope = RoPE.Config(pairs=pairs, head_dim=6).build()
    x, pos = vectors(1, 2, 3, 6).requires_grad_(), torch.arange(3)[None]
    assert torch.autograd.gradcheck(lambda v: rope.rotate(v, pos, "query"), x)
    weights = vectors(1, 2, 3, 6, seed=1)
    (grad,) = torch.autograd.grad((rope.rotate(x, pos, "query") * weights).sum(), x)
    assert_close(grad, rope.rotate(weights, -pos, "query"))


def test_impossible_settings_are_refused():
    with pytest.raises(ConfigError, match=r"head_dim must be even and positive; got 7. Rotary acts on pairs"):
        RoPE.Config(head_dim=7)
    with pytest.raises(ConfigError, match=r"Geometric.base must be positive"):
        Geometric(base=-1.0)
