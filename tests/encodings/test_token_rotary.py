"""CARoPE and Selective RoPE, against loops over their definitions."""

import math

import pytest
import torch
import torch.nn.functional as F
from tests.encodings.sampled import B, C, D, H, N, built, context, gradients_hold
from torch.testing import assert_close

from spectrope.encodings.rope import RoPE
from spectrope.encodings.token_rotary import CARoPE, SelectiveRoPE


def test_carope_accumulates_powers_of_a_map_of_each_token():
    carope, ctx = built(CARoPE.Config()), context()
    logits, pace = carope.logits(ctx), 1 / (1 + F.softplus(ctx.x_k @ carope.map.weight.T))
    q, k = (torch.complex(*x.chunk(2, -1)) for x in (ctx.q, ctx.k))
    for b, h, i, j in [(0, 0, 6, 2), (1, 3, 7, 0), (1, 1, 3, 3)]:
        expected = 0.0
        for m in range(D // 2):
            angle = sum(pace[b, t, h] ** m for t in range(j + 1, i + 1))
            expected += (q[b, h, i, m] * k[b, h, j, m].conj() * torch.exp(1j * torch.as_tensor(angle))).real
        assert_close(logits[b, h, i, j], expected / math.sqrt(D))


def test_carope_with_an_equal_pace_is_rope():
    """A map that gives every token the ratio of RoPE's frequencies turns as RoPE does."""
    carope, ctx = built(CARoPE.Config()), context()
    ratio = 10000.0 ** (-2 / D)
    wanted = math.log(math.expm1(1 / ratio - 1))
    x = torch.zeros(B, N, C).double()
    x[..., 0] = 1
    with torch.no_grad():
        carope.map.weight.zero_()
        carope.map.weight[:, 0] = wanted
    logits = carope(ctx.q, ctx.k, x_q=x, x_k=x)
    assert_close(logits, RoPE(head_dim=D, pairs="halves")(ctx.q, ctx.k))


def test_selective_rope_in_a_loop():
    encoding, ctx = built(SelectiveRoPE.Config(rank=3, kernel=3, base=50.0)), context()
    logits = encoding.logits(ctx)
    x = ctx.x_k / ctx.x_k.norm(dim=-1, keepdim=True)
    flat = x @ encoding.down.weight.T @ encoding.up.weight.T
    taps = encoding.convolution.weight[:, 0]
    turned = torch.zeros(B, N, H * D // 2).double()
    for t in range(N):
        for back in range(3):
            if t - back >= 0:
                turned[:, t] += taps[:, 2 - back] * flat[:, t - back]
    gate = torch.sigmoid(x @ encoding.gate.weight.T + encoding.gate.bias)
    steps = turned.unflatten(-1, (H, D // 2)) * gate[..., None]
    frequencies = 50.0 ** -(torch.arange(0, D, 2).double() / D)
    angles = steps.cumsum(1) * frequencies
    q, k = (torch.complex(*y.chunk(2, -1)) for y in (ctx.q, ctx.k))
    for b, h, i, j in [(0, 0, 6, 2), (1, 3, 7, 0)]:
        turn = torch.exp(1j * (angles[b, i, h] - angles[b, j, h]))
        assert_close(logits[b, h, i, j], (q[b, h, i] * k[b, h, j].conj() * turn).real.sum() / math.sqrt(D))


@pytest.mark.parametrize("encoding", [CARoPE, SelectiveRoPE])
def test_gradients_are_those_of_finite_differences(encoding):
    assert gradients_hold(encoding.Config())
