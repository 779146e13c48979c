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


def test_it_starts_as_rope():
    for layout in ("adjacent", "halves"):
        encoding = ComplexFormer(n_heads=H, head_dim=D, pairs=layout).double()
        assert_close(encoding.logits(context()), RoPE(head_dim=D, pairs=layout).logits(context()))
