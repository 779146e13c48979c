"""ComplexFormer, against angles of complex numbers."""

import math

import torch
from tests.encodings.sampled import D, H, built, context, pairs
from torch.testing import assert_close

from spectrope.encodings.complexformer import ComplexFormer
from spectrope.encodings.rope import RoPE


def test_angles_of_content_and_position_are_scaled_per_head():
    encoding, ctx = built(ComplexFormer.Config()), context()
    logits, q, k = encoding.logits(ctx), pairs(ctx.q), pairs(ctx.k)
    frequencies = 10000.0 ** -(torch.arange(0, D, 2).double() / D)
    for h, i, j in [(0, 5, 2), (3, 1, 7)]:
        a, s = encoding.content[h, 0, 0], encoding.position[h, 0, 0]
        between = q[0, h, i].angle() - k[0, h, j].angle()
        angle = a * between + s * (i - j) * frequencies
        expected = (q[0, h, i].abs() * k[0, h, j].abs() * angle.cos()).sum() / math.sqrt(D)
        assert_close(logits[0, h, i, j], expected)


def test_arguments_are_scaled_before_their_difference_is_taken():
    encoding = ComplexFormer(n_heads=1, head_dim=2).double()
    with torch.no_grad():
        encoding.content.fill_(0.5)
    q, k = (torch.tensor([math.cos(x), math.sin(x)]).double().view(1, 1, 1, 2) for x in (3.0, -3.0))
    assert_close(encoding(q, k).item(), math.cos(0.5 * 6.0) / math.sqrt(2))  # not of 6 - 2 pi, between them


def test_it_starts_as_rope():
    for layout in ("adjacent", "halves"):
        encoding = ComplexFormer(n_heads=H, head_dim=D, pairs=layout).double()
        assert_close(encoding.logits(context()), RoPE(head_dim=D, pairs=layout).logits(context()))
