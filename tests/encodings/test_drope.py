"""DRoPE, against complex products."""

import math

import torch
from tests.encodings.sampled import D, N, built, context, draw, pairs
from torch.testing import assert_close

from spectrope.encodings.drope import DRoPE
from spectrope.encodings.rope import RoPE


def test_headings_count_modulo_a_full_turn():
    drope, ctx = built(DRoPE.Config()), context()
    headings = draw(1, N)
    logits = drope(ctx.q, ctx.k, headings, headings)
    assert_close(drope(ctx.q, ctx.k, headings + 2 * math.pi, headings), logits)
    rope = built(RoPE.Config())
    assert not torch.allclose(
        rope(ctx.q, ctx.k, headings + 2 * math.pi, headings), rope(ctx.q, ctx.k, headings, headings)
    )


def test_a_logit_turns_the_complex_product_by_the_difference_of_headings():
    ctx, headings = context(), draw(1, N)
    logits = DRoPE(head_dim=D)(ctx.q, ctx.k, headings, headings)
    product = torch.einsum("bhim,bhjm->bhij", pairs(ctx.q), pairs(ctx.k).conj())
    angle = headings[0, :, None] - headings[0, None]
    assert_close(logits, (product * torch.exp(1j * angle)).real / math.sqrt(D))
