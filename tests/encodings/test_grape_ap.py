"""GRAPE's path integral, against a loop over its definition."""

import math

import torch
import torch.nn.functional as F
from tests.encodings.sampled import B, H, N, built, context, gradients_hold
from torch.testing import assert_close

from spectrope.encodings.alibi import ALiBi, alibi_slopes
from spectrope.encodings.grape_ap import GRAPEPath


def test_the_path_integral_in_a_loop():
    encoding, ctx = built(GRAPEPath.Config(width=4)), context()
    bias, slopes = encoding.bias(ctx).detach(), alibi_slopes(H)
    p = (ctx.x_k @ encoding.projection.weight.T).detach().unflatten(-1, (H, 4))
    for b, h, i, j in [(0, 0, 6, 1), (1, 3, 7, 6), (1, 2, 4, 4)]:
        total = 0.0
        for step in range(j + 1, i + 1):
            unit = p[b, step, h] / p[b, step, h].square().mean().sqrt()
            first, second = torch.complex(*unit.chunk(2)) * torch.exp(torch.tensor(1j * step)), None
            turned, second = torch.cat([first.real, first.imag]), p[b, i, h]
            total += float(F.logsigmoid(second @ turned / 4)) * float(slopes[h])
        assert_close(float(bias[b, h, i, j]), total, atol=1e-6, rtol=1e-6)


def test_a_gate_that_ignores_tokens_leaves_alibi_scaled_by_ln_2():
    encoding, ctx = built(GRAPEPath.Config()), context()
    with torch.no_grad():
        encoding.projection.weight.zero_()
    alibi = ALiBi(n_heads=H).bias(ctx).double()
    assert_close(encoding.bias(ctx).tril(), (math.log(2) * alibi).expand(B, H, N, N).tril())


def test_gradients_are_those_of_finite_differences():
    assert gradients_hold(GRAPEPath.Config())
