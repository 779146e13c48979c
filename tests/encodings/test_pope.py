"""PoPE, against a sum over coordinates."""

import math

import torch
from tests.encodings.sampled import D, H, built, context, gradients_hold
from torch.testing import assert_close

from spectrope.encodings.pope import PoPE


def test_the_sum_over_coordinates():
    pope, ctx = built(PoPE.Config(base=100.0)), context()
    logits, delta = pope.logits(ctx).detach(), pope.delta.detach().clamp(-2 * math.pi, 0)
    for h, i, j in [(0, 5, 2), (3, 1, 7), (2, 4, 4)]:
        expected = sum(
            math.log1p(math.exp(ctx.q[0, h, i, c]))
            * math.log1p(math.exp(ctx.k[0, h, j, c]))
            * math.cos((j - i) * 100.0 ** (-c / D) + delta[h, 0, c])
            for c in range(D)
        )
        assert_close(float(logits[0, h, i, j]), expected / math.sqrt(D))


def test_what_a_key_contains_does_not_move_the_peak_of_one_coordinate():
    """RoPE's does: the angle of a key's pair shifts the lag at which it is largest."""
    pope = PoPE(n_heads=1, head_dim=2, base=100.0)
    far = torch.arange(30)[None]
    q = torch.tensor([[[[3.0, -40.0]]]]).double()
    peaks = {
        int(pope(q, key.expand(1, 1, 30, 2), torch.tensor([[29]]), far).argmax())
        for key in torch.tensor([[1.0, 2.0], [-1.0, 2.0], [0.5, -3.0]]).double()
    }
    assert len(peaks) == 1


def test_gradients_pass_where_a_phase_is_clamped():
    pope, ctx = PoPE(n_heads=H, head_dim=D), context()
    with torch.no_grad():
        pope.delta.fill_(1.0)
    pope.logits(ctx).tril().sum().backward()
    assert float(pope.delta.grad.abs().min()) > 0


def test_gradients_are_those_of_finite_differences():
    assert gradients_hold(PoPE.Config())
