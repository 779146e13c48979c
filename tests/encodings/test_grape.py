"""GRAPE's logits, and the paper's claim that RoPE, ALiBi and FoX are exact special cases of group actions."""

import math

import torch
import torch.nn.functional as F
from tests.encodings.sampled import SIZES, D, H, N, built, context
from torch.testing import assert_close

from spectrope.encodings.alibi import ALiBi, alibi_slopes
from spectrope.encodings.decay import FoX
from spectrope.encodings.grape import GRAPE
from spectrope.encodings.rope import RoPE


def test_logits_are_powers_of_one_element_of_the_group():
    grape, ctx = built(GRAPE.Config(base=50.0)), context()
    logits, planes = grape.logits(ctx), grape.planes()
    for h in (0, 3):
        generator = torch.zeros(D, D).double()
        for m in range(D // 2):
            u, v = planes[h, :, 2 * m], planes[h, :, 2 * m + 1]
            generator += grape.logarithms[h, 0, m].exp() * (torch.outer(u, v) - torch.outer(v, u))
        assert_close(generator, -generator.T)
        for i, j in [(5, 2), (1, 7)]:
            power = torch.linalg.matrix_exp(-(i - j) * generator)
            assert_close(logits[0, h, i, j], (power @ ctx.q[0, h, i]) @ ctx.k[0, h, j] / math.sqrt(D))


def test_rope_is_the_case_of_coordinate_planes():
    ctx = context()
    grape, rope = GRAPE.Config().fitted(**SIZES).build().double(), RoPE(head_dim=D)
    assert_close(grape.logits(ctx), rope.logits(ctx), atol=1e-6, rtol=1e-6)  # Logarithms are float32.
    generator = torch.zeros(D, D).double()
    for m, frequency in enumerate(10000.0 ** -(torch.arange(0, D, 2).double() / D)):
        generator[2 * m + 1, 2 * m], generator[2 * m, 2 * m + 1] = frequency, -frequency
    turned = torch.linalg.matrix_exp(3 * generator) @ ctx.q[0, 0, 0]
    assert_close(rope.rotate(ctx.q, torch.full((1, N), 3), "query")[0, 0, 0], turned)


def test_alibi_is_a_unipotent_action_on_lifted_vectors():
    """G(n) = exp(nA), A of rank one with A^2 = 0, adds -m n to the product of q and k, both lifted."""
    ctx, slopes = context(), alibi_slopes(H)
    logits = ALiBi(n_heads=H).logits(ctx)
    for h, i, j in [(0, 6, 1), (3, 7, 7), (2, 5, 4)]:
        action = torch.zeros(D + 2, D + 2).double()
        action[D, D + 1] = -float(slopes[h]) * math.sqrt(D)
        assert float((action @ action).abs().max()) == 0
        q = torch.cat([ctx.q[0, h, i], torch.tensor([1.0, 0.0]).double()])
        k = torch.cat([ctx.k[0, h, j], torch.tensor([0.0, 1.0]).double()])
        power = torch.linalg.matrix_exp((i - j) * action)
        assert_close(q @ power @ k / math.sqrt(D), logits[0, h, i, j])


def test_fox_is_a_product_of_unipotent_actions_along_the_way():
    fox, ctx = built(FoX.Config()), context()
    logits = fox.logits(ctx)
    gates = F.logsigmoid(ctx.x_k @ fox.gate.weight.T + fox.gate.bias)
    for b, h, i, j in [(0, 0, 6, 1), (1, 3, 7, 6), (1, 2, 4, 4)]:
        product = torch.eye(D + 2).double()
        for step in range(j + 1, i + 1):
            action = torch.zeros(D + 2, D + 2).double()
            action[D, D + 1] = gates[b, step, h] * math.sqrt(D)
            product = torch.linalg.matrix_exp(action) @ product
        q = torch.cat([ctx.q[b, h, i], torch.tensor([1.0, 0.0]).double()])
        k = torch.cat([ctx.k[b, h, j], torch.tensor([0.0, 1.0]).double()])
        assert_close(q @ product @ k / math.sqrt(D), logits[b, h, i, j])
