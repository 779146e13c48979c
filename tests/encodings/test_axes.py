"""Positions on several axes: axial and mixed RoPE, M-RoPE, and encodings of one axis among them."""

import math

import pytest
import torch
from torch.testing import assert_close
from transformers import Qwen2VLConfig, Qwen2VLTextConfig, Qwen3VLTextConfig
from transformers.models.qwen2_vl import modeling_qwen2_vl
from transformers.models.qwen2_vl.configuration_qwen2_vl import Qwen2VLVisionConfig
from transformers.models.qwen3_vl import modeling_qwen3_vl

from spectrope.attention import attention
from spectrope.core.config import from_dict
from spectrope.core.errors import ConfigError
from spectrope.encodings.alibi import ALiBi
from spectrope.encodings.axial import AxialRoPE, MixedRoPE, MRoPE, mrope_axes
from spectrope.encodings.base import Context
from spectrope.encodings.learned import Learned
from spectrope.encodings.partial_dims import PartialDims
from spectrope.encodings.per_head import Group, PerHead
from spectrope.encodings.positions.axes import coordinates, grid_positions, mrope_positions, order
from spectrope.encodings.rope import RoPE
from spectrope.encodings.sum import Sum

H, D = 4, 16
ROWS, COLUMNS = torch.tensor([[0, 0, 0, 1, 1, 1]]), torch.tensor([[0, 1, 2, 0, 1, 2]])
GRID = grid_positions(ROWS, COLUMNS)


def draw(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def context(pos):
    n = pos.shape[1]
    return Context(draw(1, H, n, D), draw(1, H, n, D, seed=1), pos, pos)


def test_axial_logits_are_those_of_two_ropes_of_half_the_width():
    q, k = draw(1, 1, 6, D), draw(1, 1, 6, D, seed=1)
    logits = AxialRoPE(head_dim=D, base=50.0)(q, k, GRID, GRID)
    pairs = q.unflatten(-1, (-1, 2)), k.unflatten(-1, (-1, 2))
    half = RoPE(head_dim=D // 2, schedule={"kind": "geometric", "base": 50.0})
    expected = sum(
        half(*(x[..., axis::2, :].flatten(-2) for x in pairs), place[0], place[0])
        for axis, place in enumerate((ROWS, COLUMNS))
    )
    assert_close(logits, expected / math.sqrt(2))


def test_axial_rope_agrees_with_the_vision_rotary_of_qwen2_vl():
    """There, rows turn the first half of the pairs and columns the second; here they take turns."""
    config = Qwen2VLVisionConfig(embed_dim=D, num_heads=1)
    theirs = modeling_qwen2_vl.Qwen2VLVisionRotaryEmbedding(config)
    base = config.rope_parameters["rope_theta"]
    cos, sin = theirs(draw(1), torch.stack([ROWS[0], COLUMNS[0]], -1))
    q, k = draw(1, 1, 6, D), draw(1, 1, 6, D, seed=1)
    logits = AxialRoPE(head_dim=D, base=base)(q, k, GRID, GRID)
    turn = torch.polar(torch.ones(6, D // 2), torch.atan2(sin, cos)[:, : D // 2])
    rows, columns = turn.chunk(2, -1)
    turn = torch.stack([rows, columns], -1).flatten(-2)
    q, k = (torch.view_as_complex(x[0, 0].unflatten(-1, (-1, 2)).contiguous()) * turn for x in (q, k))
    assert_close(logits[0, 0], (q @ k.mH).real / math.sqrt(D), atol=1e-5, rtol=1e-5)


def test_mixed_rope_turns_by_both_coordinates():
    mixed = MixedRoPE(n_heads=H, head_dim=D)
    ctx = context(GRID)
    logits, frequencies = mixed.logits(ctx), mixed.directions()
    q, k = (torch.view_as_complex(x[0].unflatten(-1, (-1, 2)).contiguous()) for x in (ctx.q, ctx.k))
    for h, i, j in [(0, 0, 5), (2, 4, 1), (3, 3, 3)]:
        difference = torch.stack([ROWS[0, i] - ROWS[0, j], COLUMNS[0, i] - COLUMNS[0, j]]).double()
        turn = torch.polar(torch.ones(D // 2).double(), frequencies[h] @ difference)
        assert_close(logits[0, h, i, j], (q[h, i] * k[h, j].conj() * turn).real.sum() / math.sqrt(D))


def test_mixed_directions_are_orthogonal_pairs_of_falling_magnitude():
    frequencies = MixedRoPE(n_heads=H, head_dim=D, learned=False).directions()
    along, across = frequencies.chunk(2, 1)
    assert_close((along * across).sum(-1), torch.zeros(H, D // 4).double())
    assert_close(along.norm(dim=-1), (10.0 ** -(torch.arange(4).double() / 4)).expand(H, -1))


@pytest.mark.parametrize("layout", ["sections", "interleaved"])
def test_mrope_agrees_with_qwen2_vl_and_qwen3_vl(layout):
    ours = MRoPE(head_dim=D, height=0.25, width=0.25, layout=layout, pairs="halves")
    assert ours.config.sections == (4, 2, 2)
    sections = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [4, 2, 2]}
    sizes = {"hidden_size": D * H, "num_attention_heads": H, "head_dim": D, "rope_parameters": sections}
    if layout == "sections":
        theirs, module = (
            modeling_qwen2_vl.Qwen2VLRotaryEmbedding(Qwen2VLTextConfig(**sizes)),
            modeling_qwen2_vl,
        )
    else:
        theirs = modeling_qwen3_vl.Qwen3VLTextRotaryEmbedding(Qwen3VLTextConfig(**sizes))
        module = modeling_qwen3_vl
    pos, _ = mrope_positions(2, 1, 2, 3, 2)
    q, k = draw(1, H, 10, D), draw(1, H, 10, D, seed=1)
    waves = theirs(q, pos[..., 1:].movedim(-1, 0))
    for mine, expected in zip(("query", "key"), module.apply_rotary_pos_emb(q, k, *waves), strict=True):
        x = q if mine == "query" else k
        assert_close(ours.rotate(x, pos, mine), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("before", "height", "width", "after"), [(2, 4, 6, 3), (0, 2, 2, 1)])
def test_positions_and_deltas_are_those_of_qwen2_vl(before, height, width, after):
    text = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "num_key_value_heads": 1}
    text |= {"intermediate_size": 8, "vocab_size": 64}
    vision = {"depth": 1, "embed_dim": 8, "num_heads": 1, "hidden_size": 8, "spatial_merge_size": 2}
    config = Qwen2VLConfig(
        text_config=text, vision_config=vision, image_token_id=60, vision_start_token_id=61
    )
    model = modeling_qwen2_vl.Qwen2VLModel(config)
    tokens = height * width // 4
    ids = torch.tensor([[1] * before + [60] * tokens + [1] * after])
    kinds = (ids == 60).int()
    theirs, deltas = model.get_rope_index(
        ids, image_grid_thw=torch.tensor([[1, height, width]]), mm_token_type_ids=kinds
    )
    ours, delta = mrope_positions(before, 1, height // 2, width // 2, after)
    assert_close(ours[0, :, 1:].T, theirs[:, 0].long())
    assert delta == int(deltas)


def test_mrope_numbers_a_film_between_texts_by_hand():
    pos, delta = mrope_positions(2, 2, 1, 3, 2)
    assert pos[0, :, 0].tolist() == list(range(10))
    assert pos[0, :, 1].tolist() == [0, 1, 2, 2, 2, 3, 3, 3, 5, 6]  # time
    assert pos[0, :, 2].tolist() == [0, 1, 2, 2, 2, 2, 2, 2, 5, 6]  # height
    assert pos[0, :, 3].tolist() == [0, 1, 2, 3, 4, 2, 3, 4, 5, 6]  # width
    assert delta == -3
    assert (pos[0, 8:, 1] == pos[0, 8:, 0] + delta).all()


def test_mrope_on_text_is_rope():
    text = torch.arange(7)[None]
    ours, rope, ctx = MRoPE(head_dim=D), RoPE(head_dim=D), context(text)
    assert_close(ours.logits(ctx), rope.logits(ctx))
    numbered, _ = mrope_positions(7, 0, 0, 0, 0)
    assert_close(ours.logits(context(numbered)), rope.logits(ctx))


def test_sections_and_interleaving_deal_out_pairs():
    assert mrope_axes((2, 3, 3), interleaved=False).tolist() == [0, 0, 1, 1, 1, 2, 2, 2]
    assert mrope_axes((4, 2, 2), interleaved=True).tolist() == [0, 1, 2, 0, 1, 2, 0, 0]


def test_an_encoding_of_one_axis_reads_the_order():
    for config in (RoPE.Config(head_dim=D), ALiBi.Config(n_heads=H)):
        encoding, flat = config.build(), order(GRID)
        ctx, v = context(GRID), draw(1, H, 6, D, seed=2)
        for impl in ("reference", "explicit", "fastest"):
            seen = attention(ctx, v, encoding, causal=True, impl=impl)
            assert_close(seen, attention(context(flat), v, encoding, causal=True, impl=impl))
        assert_close(encoding(ctx.q, ctx.k, GRID, GRID), encoding(ctx.q, ctx.k, flat, flat))


def test_mixtures_give_each_part_the_axes_that_it_reads():
    axial = AxialRoPE.Config(head_dim=D)
    ctx, v = context(GRID), draw(1, H, 6, D, seed=2)
    flat = context(order(GRID))
    both = Sum.Config(parts=(axial, ALiBi.Config(n_heads=H))).build()
    expected = axial.build().logits(ctx) + ALiBi(n_heads=H).bias(flat)
    assert both.axes == 2
    assert_close(both.logits(ctx), expected)
    groups = (Group(heads=2, encoding=axial), Group(heads=2, encoding=RoPE.Config(head_dim=D)))
    heads = PerHead.Config(n_heads=H, groups=groups).build()
    assert_close(heads.logits(ctx)[:, :2], axial.build().logits(ctx)[:, :2])
    assert_close(heads.logits(ctx)[:, 2:], RoPE(head_dim=D).logits(flat)[:, 2:])
    for encoding in (both, heads):
        reference = attention(ctx, v, encoding, causal=False)
        assert_close(attention(ctx, v, encoding, causal=False, impl="explicit"), reference)
    partial = PartialDims.Config(head_dim=D, inner=axial).build()
    assert not torch.allclose(partial.logits(ctx), partial.logits(flat))
    table = Learned.Config(d_model=8, max_length=6)
    summed = Sum.Config(parts=(axial, table)).build()
    assert_close(summed.embed(draw(1, 6, 8).float(), GRID), summed.embed(draw(1, 6, 8).float(), order(GRID)))


def test_axes_that_positions_lack_are_refused():
    with pytest.raises(ConfigError, match="n_axes: Input should be 2 or 3"):
        from_dict(AxialRoPE.Config, {"n_axes": 4})
    with pytest.raises(ConfigError, match="2 axes beside the order of the tokens, and the encoding reads 3"):
        MRoPE(head_dim=D).rotate(draw(1, H, 6, D), GRID[..., :3], "query")
    assert coordinates(torch.arange(3), 2).tolist() == [[[0, 0], [1, 1], [2, 2]]]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (lambda: AxialRoPE.Config(head_dim=4, n_axes=3), "head_dim must be at least 6"),
        (lambda: MixedRoPE.Config(head_dim=6), "head_dim must be a positive multiple of 4"),
        (lambda: MRoPE.Config(height=0.7, width=0.7), "width must be at most what height leaves"),
        (lambda: MRoPE.Config(height=-0.1), "height must be a share"),
    ],
)
def test_what_breaks_a_rule_is_refused(config, message):
    with pytest.raises(ConfigError, match=message):
        config()
