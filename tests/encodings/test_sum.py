"""Encodings that act together."""

from dataclasses import dataclass, replace

import pytest
import torch
from torch.testing import assert_close

from spectrope.core.errors import ConfigError, UnsupportedError
from spectrope.encodings.alibi import ALiBi
from spectrope.encodings.base import ENCODINGS, Context, Encoding, EncodingConfig, Form, Scope, Tag
from spectrope.encodings.laws import check_laws
from spectrope.encodings.learned import Learned
from spectrope.encodings.nope import NoPE
from spectrope.encodings.relative import RelativeTable
from spectrope.encodings.rope import RoPE
from spectrope.encodings.shaw import Shaw
from spectrope.encodings.sinusoidal import Sinusoidal
from spectrope.encodings.sum import Sum
from spectrope.encodings.t5 import T5
from spectrope.encodings.tupe import TUPE


def context(n=9, heads=4, dim=8):
    draw = torch.Generator().manual_seed(0)
    q, k = torch.randn(2, 2, heads, n, dim, generator=draw, dtype=torch.float64)
    pos = torch.arange(n)[None]
    return Context(q, k, pos, pos)


def test_rope_with_an_absolute_input_term():
    config = Sum.Config(parts=(RoPE.Config(), Sinusoidal.Config(layout="halves")))
    both = config.fitted(d_model=32, head_dim=8, n_heads=4).build()
    ctx, x = context(), torch.randn(2, 9, 32, dtype=torch.float64)
    assert_close(both.logits(ctx), RoPE.Config(head_dim=8).build().logits(ctx))
    waves = Sinusoidal.Config(d_model=32, layout="halves").build().embed(x, ctx.q_pos)
    assert_close(both.embed(x, ctx.q_pos), waves)
    assert (both.form, both.scope, both.tags) == (Form.DOT, Scope.MODEL, {Tag.CONTENT_FREE})


def test_biases_add_and_keep_their_form():
    parts = (ALiBi.Config(n_heads=4), NoPE.Config(), T5.Config(n_heads=4))
    both, ctx = Sum.Config(parts=parts).build(), context()
    alibi, _, t5 = both.terms
    assert both.form is Form.DOT_PLUS_LAG
    assert both.tags == {Tag.SHIFT_INVARIANT, Tag.CONTENT_FREE, Tag.LEARNED}
    lags = torch.arange(-8, 9)
    assert_close(both.lag_bias(lags), alibi.lag_bias(lags) + t5.lag_bias(lags))
    assert_close(both.bias(ctx), alibi.bias(ctx) + t5.bias(ctx))


def test_layers_share_the_parts_that_a_model_shares():
    parts = (Learned.Config(), RelativeTable.Config())
    layers = Sum.Config(parts=parts).build_layers(3)
    assert layers[0].scope is Scope.LAYER
    assert len({id(layer.terms[0]) for layer in layers}) == 1
    assert len({id(layer.terms[1]) for layer in layers}) == 3
    assert len(set(map(id, RoPE.Config().build_layers(3)))) == 1
    assert len(set(map(id, RelativeTable.Config().build_layers(3)))) == 3


def test_sizes_reach_parts_at_any_depth():
    config = Sum.Config(parts=(Sum.Config(parts=(RoPE.Config(),)), T5.Config()))
    fitted = config.fitted(d_model=24, n_heads=3, head_dim=8, max_length=40, causal=False)
    expected = Sum.Config(parts=(RoPE.Config(head_dim=8),)), T5.Config(n_heads=3, causal=False)
    assert fitted == Sum.Config(parts=expected)


@pytest.fixture
def cubed(monkeypatch):
    """The configuration of an encoding that computes logits by itself, registered for one test."""
    assert len(ENCODINGS) > 0  # complete before it is copied
    monkeypatch.setattr(ENCODINGS, "_members", {name: ENCODINGS[name] for name in ENCODINGS})

    class Cubed(Encoding, name="cubed"):
        form = Form.GENERAL

        @dataclass(frozen=True, kw_only=True)
        class Config(EncodingConfig):
            pass

        def logits(self, ctx):
            return (ctx.q @ ctx.k.transpose(-1, -2)) ** 3

    return Cubed.Config()


def test_one_part_may_compute_the_logits(cubed):
    both, ctx = Sum.Config(parts=(cubed, ALiBi.Config(n_heads=4), NoPE.Config())).build(), context()
    cube, alibi, _ = both.terms
    assert both.form is Form.GENERAL
    assert_close(both.logits(ctx), cube.logits(ctx) + alibi.bias(ctx))
    assert_close(Sum.Config(parts=(cubed,)).build().logits(ctx), cube.logits(ctx))
    nested = Sum.Config(parts=(Sum.Config(parts=(cubed,)), ALiBi.Config(n_heads=4))).build()
    assert_close(nested.logits(ctx), both.logits(ctx))


def test_what_reads_values_its_own_way_may_be_rotated():
    both, ctx = (
        Sum.Config(parts=(RoPE.Config(head_dim=8), Shaw.Config(head_dim=8))).build().double(),
        context(),
    )
    rope, shaw = both.terms
    assert_close(both.logits(ctx), rope.logits(ctx) + shaw.bias(ctx))
    pattern = both.logits(ctx).softmax(-1)
    assert_close(both.read(pattern, ctx.k, ctx), shaw.read(pattern, ctx.k, ctx))


def test_parts_that_would_undo_each_other_are_refused(cubed):
    with pytest.raises(ConfigError, match=r"parts must be at most one encoding of form GENERAL"):
        Sum.Config(parts=(cubed, cubed)).build()
    with pytest.raises(ConfigError, match=r"free of rotations and factors beside an encoding"):
        Sum.Config(parts=(cubed, RoPE.Config())).build()
    with pytest.raises(ConfigError, match=r"free of rotations and factors beside an encoding"):
        Sum.Config(parts=(cubed, TUPE.Config())).build()


def test_a_sum_of_nothing_is_refused():
    with pytest.raises(ConfigError, match=r"Sum.Config.parts must be at least one encoding"):
        Sum.Config(parts=())


@pytest.mark.parametrize("other", ["xpos", "drope", "rope_pp", "partial_dims"])
def test_rotations_of_the_same_pairs_keep_the_lag(other):
    rotations = (RoPE.Config(head_dim=8), ENCODINGS.config(other)().fitted(head_dim=8, n_heads=4))
    laws = {check.law: check for check in check_laws(Sum(parts=rotations))}
    assert laws[Tag.SHIFT_INVARIANT].declared
    assert laws[Tag.SHIFT_INVARIANT].honest
    halves = {"inner": RoPE.Config(pairs="halves")} if other == "partial_dims" else {"pairs": "halves"}
    crossed = (rotations[0], replace(rotations[1], **halves))
    assert Tag.SHIFT_INVARIANT not in Sum(parts=crossed).tags


def test_a_sum_without_a_bias_has_none_of_the_lag():
    both = Sum(Sum.Config(parts=(RoPE.Config(head_dim=8), Sinusoidal.Config(d_model=32))))
    with pytest.raises(UnsupportedError, match="Sum has no bias of the lag alone"):
        both.lag_bias(torch.arange(3))
