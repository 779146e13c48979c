"""Encodings of some heads, some layers and some coordinates."""

import pytest
import torch
from torch.testing import assert_close
from transformers.models.gpt_neox import modeling_gpt_neox

from spectrope.core.errors import ConfigError
from spectrope.encodings.alibi import ALiBi
from spectrope.encodings.axial import MRoPE
from spectrope.encodings.base import Context, Form, Scope, Tag
from spectrope.encodings.decay import FoX
from spectrope.encodings.grape_ap import GRAPEPath
from spectrope.encodings.learned import Learned
from spectrope.encodings.nope import NoPE
from spectrope.encodings.partial_dims import PartialDims
from spectrope.encodings.path import PaTH
from spectrope.encodings.per_head import Group, PerHead
from spectrope.encodings.per_layer import PerLayer
from spectrope.encodings.relative import RelativeTable
from spectrope.encodings.rope import RoPE
from spectrope.encodings.schedules.geometric import Geometric
from spectrope.encodings.sinusoidal import Sinusoidal
from spectrope.encodings.sum import Sum
from spectrope.encodings.token_rotary import CARoPE

SIZES = {"d_model": 32, "n_heads": 4, "head_dim": 8, "max_length": 40, "causal": False}


def context(n=9):
    draw = torch.Generator().manual_seed(0)
    q, k = torch.randn(2, 2, 4, n, 8, generator=draw, dtype=torch.float64)
    pos = torch.arange(n)[None]
    return Context(q, k, pos, pos)


def test_rope_on_the_first_heads_alone():
    ctx, part = context(), PerHead.Config(groups=(Group(heads=3),)).fitted(**SIZES).build()
    logits = part.logits(ctx)
    assert_close(logits[:, :3], RoPE.Config(head_dim=8).build().logits(ctx)[:, :3])
    assert_close(logits[:, 3:], NoPE.Config().build().logits(ctx)[:, 3:])
    assert part.form is Form.DOT
    assert part.bias(ctx) is None
    assert [heads for heads, _ in part.parts()] == [slice(0, 3), slice(3, 4)]


def test_groups_of_heads_have_biases_of_their_own():
    groups = (Group(heads=2, encoding=ALiBi.Config()), Group(heads=1))
    ctx, part = context(), PerHead.Config(groups=groups).fitted(**SIZES).build()
    assert part.form is Form.DOT_PLUS_LAG
    assert part.tags == {Tag.SHIFT_INVARIANT, Tag.CONTENT_FREE}
    bias = part.bias(ctx)
    assert_close(bias[:, :2], ALiBi.Config(n_heads=2).build().bias(ctx))
    assert not bias[:, 2:].any()
    lags = torch.arange(-8, 9)
    assert_close(part.lag_bias(lags)[8:, :], part.lag_bias(-lags).flip(0)[8:, :])
    assert_close(bias[0, :, 8], part.lag_bias(8 - torch.arange(9).double()).T)


def test_all_heads_may_be_in_groups():
    part = PerHead.Config(groups=(Group(heads=4),)).fitted(**SIZES).build()
    assert len(part.terms) == 1
    assert_close(part.logits(context()), RoPE.Config(head_dim=8).build().logits(context()))


def test_a_mask_per_head_is_narrowed_with_its_heads():
    ctx = context()
    masks = [None, torch.ones(2, 1, 9, 9) > 0, torch.ones(2, 4, 9, 9) > 0, torch.ones(9, 9) > 0]
    shapes = []
    for mask in masks:
        seen = Context(ctx.q, ctx.k, ctx.q_pos, ctx.k_pos, mask=mask).of_heads(slice(1, 3)).mask
        shapes.append(None if seen is None else tuple(seen.shape))
    assert shapes == [None, (2, 1, 9, 9), (2, 2, 9, 9), (9, 9)]


def test_layers_take_their_encodings_in_a_cycle():
    config = PerLayer.Config().fitted(**SIZES)
    layers = config.build_layers(10)
    assert [type(layer).__name__ for layer in layers] == (["RoPE"] * 3 + ["NoPE"]) * 2 + ["RoPE"] * 2
    assert layers[0] is layers[4] is layers[8]
    assert_close(config.build().logits(context()), layers[0].logits(context()))


def test_layers_may_have_bases_of_their_own():
    bases = [100.0, 10000.0, 1000000.0]
    layers = tuple(RoPE.Config(schedule=Geometric(base=base)) for base in bases)
    built = PerLayer.Config(layers=layers).fitted(**SIZES).build_layers(3)
    for layer, base in zip(built, bases, strict=True):
        assert_close(layer.angles.frequencies.value, Geometric(base=base).frequencies(8))


def test_layers_with_tables_of_their_own_share_none():
    config = PerLayer.Config(layers=(RelativeTable.Config(), NoPE.Config())).fitted(**SIZES)
    layers = config.build_layers(5)
    assert len({id(layer) for layer in layers}) == 4  # three tables, one NoPE
    assert config.build().scope is Scope.LAYER
    assert len(PerLayer.Config().build_layers(2)) == 2


def test_heads_share_what_the_model_shares_and_no_more():
    sharing = PerHead.Config(groups=(Group(encoding=RelativeTable.Config()), Group())).fitted(**SIZES)
    first, second = sharing.build_layers(2)
    assert first.terms[0] is not second.terms[0]
    assert first.terms[1] is second.terms[1]


def test_part_of_the_coordinates_is_turned_as_in_gpt_neox():
    x, pos = context(20).q, torch.arange(20)[None]
    angles = (pos[..., None] * Geometric().frequencies(4)).repeat(1, 1, 2)
    expected, _ = modeling_gpt_neox.apply_rotary_pos_emb(x[..., :4], x[..., :4], angles.cos(), angles.sin())
    partial = PartialDims.Config(fraction=0.5, inner=RoPE.Config(pairs="halves")).fitted(**SIZES).build()
    assert_close(partial.rotate(x, pos, "query"), torch.cat([expected, x[..., 4:]], -1))


def test_coordinates_at_odd_widths_are_turned_too():
    x, pos = torch.randn(1, 1, 5, 7, dtype=torch.float64), torch.arange(5)[None]
    partial = PartialDims.Config(fraction=0.6, head_dim=7).build()
    turned = partial.rotate(x, pos, "key")
    assert_close(turned[..., 4:], x[..., 4:])
    assert_close(turned[..., :4], RoPE.Config(head_dim=4).build().rotate(x[..., :4].clone(), pos, "key"))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (lambda: PerHead.Config(groups=()), "groups must be at least one group"),
        (
            lambda: PerHead.Config(groups=(Group(heads=17),)),
            r"groups must be of 16 heads at most together; got 17\.",
        ),
        (lambda: Group(heads=0), "heads must be at least 1"),
        (lambda: PerLayer.Config(layers=()), "layers must be at least one encoding"),
        (lambda: PartialDims.Config(fraction=0.0), "fraction must be above 0 and at most 1"),
    ],
)
def test_impossible_settings_are_refused(config, message):
    with pytest.raises(ConfigError, match=message):
        config()


@pytest.mark.parametrize("added", [Sinusoidal.Config(), Sum.Config(parts=(RoPE.Config(), Learned.Config()))])
@pytest.mark.parametrize(
    "around",
    [
        lambda added: PerHead.Config(groups=(Group(encoding=added),)),
        lambda added: PerLayer.Config(layers=(NoPE.Config(), added)),
        lambda added: PartialDims.Config(inner=added),
    ],
)
def test_what_adds_to_the_input_cannot_be_of_heads_layers_or_coordinates(around, added):
    config = around(added)
    for build in (config.build, lambda: config.build_layers(2)):
        with pytest.raises(ConfigError, match=r"leave the input alone; got .* beside this one, in a Sum"):
            build()


def test_biases_of_part_of_the_coordinates_are_refused():
    with pytest.raises(ConfigError, match=r"PartialDims.Config.inner must be an encoding that rotates"):
        PartialDims.Config(inner=ALiBi.Config()).build()


def test_sizes_of_parts_and_of_hidden_states_are_checked():
    q = torch.ones(1, 4, 3, 16)
    with pytest.raises(ConfigError, match="Sum was built with n_heads=1"):
        Sum(parts=(ALiBi.Config(n_heads=1),))(q, q)
    gate = FoX(d_model=32, n_heads=4)
    with pytest.raises(ConfigError, match="FoX was built with d_model=32; got x_k of width 8"):
        gate(q, q, x_k=torch.ones(1, 3, 8))


@pytest.mark.parametrize("cls", [FoX, CARoPE, GRAPEPath, PaTH])
def test_more_queries_than_keys_are_refused_where_queries_come_last(cls):
    config = cls.Config().fitted(d_model=32, n_heads=4, head_dim=16)
    q, k, x = torch.ones(1, 4, 9, 16), torch.ones(1, 4, 6, 16), torch.ones(1, 6, 32)
    with pytest.raises(ConfigError, match="queries to be the last tokens among the keys; got 9 queries"):
        cls(config)(q, k, x_k=x)


@pytest.mark.parametrize("dtype", [torch.bool, torch.complex64])
def test_positions_are_real_numbers(dtype):
    q = torch.ones(1, 4, 3, 16)
    with pytest.raises(ConfigError, match="q_pos of RoPE must be real numbers"):
        RoPE()(q, q, torch.ones(3, dtype=dtype))


def test_pairs_of_each_axis_are_those_that_turn():
    for layout, counts in (("sections", (2, 3, 3)), ("interleaved", (3, 3, 2))):
        mrope = MRoPE(layout=layout)
        turning = (mrope.directions()[0] != 0).sum(0).tolist()
        assert mrope.config.sections == counts == tuple(turning)
