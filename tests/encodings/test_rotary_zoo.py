"""xPos, FoPE, HARoPE and the blend of rotated and plain logits."""

import math

import pytest
import torch
from torch.testing import assert_close

from spectrope.core.errors import ConfigError
from spectrope.encodings.base import ENCODINGS, Context, Tag
from spectrope.encodings.blend import Blend
from spectrope.encodings.fope import FoPE
from spectrope.encodings.harope import HARoPE
from spectrope.encodings.misread_rope import MisreadRoPE
from spectrope.encodings.nope import NoPE
from spectrope.encodings.rope import RoPE
from spectrope.encodings.schedules.geometric import Geometric
from spectrope.encodings.schedules.ntk import DynamicNTK
from spectrope.encodings.xpos import XPos

N, H, D = 9, 3, 8
ROTARIES = ("xpos", "fope", "harope", "blend", "misread_rope")


def draw(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def context():
    pos = torch.arange(N)[None]
    return Context(draw(2, H, N, D), draw(2, H, N, D, seed=1), pos, pos)


@pytest.mark.parametrize("pairs", ["adjacent", "halves"])
def test_the_misread_table_by_hand(pairs):
    """Width 8: sines of the angles a, b, c, d and then their cosines, read as sine, cosine, sine, ..."""
    x, p = draw(1, 1, 1, 8), 3.0
    a, b, c, d = (p * 10000.0 ** (-j / 4) for j in range(4))
    sines, cosines = [math.sin(a), math.sin(c), math.cos(a), math.cos(c)], []
    cosines += [math.sin(b), math.sin(d), math.cos(b), math.cos(d)]
    v = x.flatten().tolist()
    firsts, seconds = (v[::2], v[1::2]) if pairs == "adjacent" else (v[:4], v[4:])
    turned = [
        (u * co - w * si, u * si + w * co)
        for u, w, si, co in zip(firsts, seconds, sines, cosines, strict=True)
    ]
    flat = (
        [n for pair in turned for n in pair]
        if pairs == "adjacent"
        else [n for side in zip(*turned, strict=True) for n in side]
    )
    encoding = MisreadRoPE.Config(head_dim=8, pairs=pairs).build()
    got = encoding.rotate(x, torch.tensor([[p]], dtype=torch.float64), "query")
    assert_close(got.flatten(), torch.tensor(flat, dtype=torch.float64))


def test_the_misread_table_loses_half_the_pairs_at_the_origin():
    x = draw(1, 1, 1, 8)
    got = MisreadRoPE.Config(head_dim=8).build().rotate(x, torch.zeros(1, 1), "query")
    assert not got[..., :4].any()
    assert got[..., 4:].norm() > x[..., 4:].norm()


def test_xpos_decays_each_pair_by_its_own_rate():
    xpos, ctx = XPos.Config(head_dim=D).build(), context()
    q, k = (torch.view_as_complex(v.unflatten(-1, (-1, 2))) for v in (ctx.q, ctx.k))
    lag = ctx.lag[0, :, :, None]
    zeta = (torch.arange(0, D, 2).double() + 0.4 * D) / (1.4 * D)  # as in torchscale
    decayed = zeta ** (lag / 512) * torch.exp(1j * lag * Geometric().frequencies(D))
    expected = torch.einsum("bhic,bhjc,ijc->bhij", q, k.conj(), decayed).real / D**0.5
    assert_close(xpos.logits(ctx), expected)


def test_xpos_without_decay_is_rope():
    xpos = XPos.Config(head_dim=D, gamma=1e12, pairs="halves").build()
    assert_close(xpos.logits(context()), RoPE.Config(head_dim=D).build().logits(halved(context())))


def halved(ctx):
    """The same vectors with halves for pairs laid out as adjacent ones."""
    q, k = (v.unflatten(-1, (2, -1)).transpose(-1, -2).flatten(-2) for v in (ctx.q, ctx.k))
    return Context(q, k, ctx.q_pos, ctx.k_pos)


@pytest.mark.parametrize("pairs", ["adjacent", "halves"])
def test_fope_mixes_the_frequencies_that_turn(pairs):
    config = FoPE.Config(n_heads=H, head_dim=D, max_length=128, pairs=pairs)
    fope, ctx = config.build(), context()
    frequencies = [w for w in Geometric().frequencies(D).tolist() if w * 128 >= 2 * math.pi]
    assert len(frequencies) == 2
    turned = fope.rotate(ctx.q, ctx.q_pos, "query")
    for h, p, j in [(0, 0, 0), (1, 4, 1), (2, 8, 0), (2, 8, 3)]:
        index = (2 * j, 2 * j + 1) if pairs == "adjacent" else (j, j + D // 2)
        real, imaginary = 1.0, 0.0
        if j < 2:
            real = sum(float(fope.mixing[0, h, k, j]) * math.cos(p * w) for k, w in enumerate(frequencies))
            imaginary = sum(
                float(fope.mixing[1, h, k, j]) * math.sin(p * w) for k, w in enumerate(frequencies)
            )
        x, y = (ctx.q[0, h, p, i].item() for i in index)
        assert_close(turned[0, h, p, index[0]].item(), x * real - y * imaginary)
        assert_close(turned[0, h, p, index[1]].item(), x * imaginary + y * real)


def test_fope_without_noise_is_rope_on_the_pairs_that_turn():
    config = FoPE.Config(n_heads=H, head_dim=D, max_length=7000, gain=0.0)
    assert_close(config.build().logits(context()), RoPE.Config(head_dim=D).build().logits(context()))


def test_fope_draws_its_noise_as_xavier_from_its_seed():
    fope = FoPE.Config(n_heads=64, head_dim=64, max_length=100_000, gain=0.5).build()
    noise = fope.mixing - torch.eye(32)
    by_torch = torch.nn.init.xavier_normal_(torch.empty(64, 32, 32), gain=0.5)
    assert noise.std().item() == pytest.approx(by_torch.std().item(), rel=0.02)
    again = FoPE.Config(n_heads=64, head_dim=64, max_length=100_000, gain=0.5, learned=True).build()
    assert torch.equal(again.mixing, fope.mixing)
    assert "mixing" in fope.state_dict()


def test_harope_starts_as_rope():
    harope = HARoPE.Config(n_heads=H, head_dim=D).build().double()
    assert_close(harope.logits(context()), RoPE.Config(head_dim=D).build().logits(context()))


def test_harope_maps_queries_and_keys_alike_before_it_rotates():
    harope, ctx = HARoPE.Config(n_heads=H, head_dim=D).build().double(), context()
    with torch.no_grad():
        harope.generators.copy_(draw(2, H, D, D, seed=2))
        harope.log_scales.copy_(draw(H, 1, D, seed=3))
    maps = harope.maps()
    singular = torch.linalg.svdvals(maps)
    assert_close(singular, harope.log_scales[:, 0].exp().sort(descending=True).values)
    moved = Context(ctx.q @ maps, ctx.k @ maps, ctx.q_pos, ctx.k_pos)
    assert_close(harope.logits(ctx), RoPE.Config(head_dim=D).build().logits(moved))


def test_blend_weighs_rotated_logits_per_head():
    blend, ctx = Blend.Config(n_heads=H, head_dim=D, learned=True, alpha=2.0).build().double(), context()
    with torch.no_grad():
        blend.alpha.copy_(torch.tensor([0.0, 1.0, -0.5])[:, None, None])
    plain, rotated = NoPE.Config().build().logits(ctx), RoPE.Config(head_dim=D).build().logits(ctx)
    assert_close(blend.logits(ctx), plain + torch.tensor([0.0, 1.0, -0.5])[:, None, None] * rotated)
    fixed = Blend.Config(n_heads=H, head_dim=D, alpha=2.0).build().double()
    assert_close(fixed.logits(ctx), plain + 2 * rotated)
    assert Tag.LEARNED not in fixed.tags


@pytest.mark.parametrize("kind", ["xpos", "harope", "blend"])
def test_schedules_decide_the_laws(kind):
    encoding = ENCODINGS.config(kind)(schedule=DynamicNTK()).build()
    assert Tag.SHIFT_INVARIANT not in encoding.tags


@pytest.mark.parametrize(
    ("kind", "field", "value", "message"),
    [
        *((kind, "head_dim", 7, "head_dim must be even and positive") for kind in ROTARIES),
        *((kind, "n_heads", 0, "n_heads must be at least 1") for kind in ("fope", "harope", "blend")),
        ("xpos", "gamma", 0.0, "gamma must be positive"),
        ("xpos", "scale_base", 0.0, "scale_base must be positive"),
        ("fope", "max_length", 6, "max_length must be at least 7"),
        ("fope", "base", 1.0, "base must be above 1"),
        ("fope", "gain", -1.0, "gain must be at least 0"),
    ],
)
def test_impossible_settings_are_refused(kind, field, value, message):
    with pytest.raises(ConfigError, match=message):
        ENCODINGS.config(kind)(**{field: value})
