"""Groups of heads, each on a kernel of its own."""

import torch
from torch.testing import assert_close

from spectrope.attention import attention, fastest
from spectrope.core.noise import Noise
from spectrope.encodings.base import Context, Form
from spectrope.encodings.path import PaTH
from spectrope.encodings.per_head import Group, PerHead
from spectrope.encodings.shaw import Shaw

CPU = torch.device("cpu")
SIZES = {"d_model": 12, "n_heads": 4, "head_dim": 6, "max_length": 20, "causal": True}
MIXTURE = PerHead.Config(
    groups=(Group(encoding=PaTH.Config()), Group(heads=2), Group(encoding=Shaw.Config()))
)


def mixture():
    return MIXTURE.fitted(**SIZES).build().double()


def inputs(n=11):
    draw = torch.Generator().manual_seed(0)
    q, k, v = torch.randn(3, 2, 4, n, 6, generator=draw, dtype=torch.float64).requires_grad_()
    x, pos = torch.randn(2, n, 12, generator=draw, dtype=torch.float64), torch.arange(n)[None]
    return Context(q, k, pos, pos, x, x), v


def test_groups_together_are_the_reference():
    encoding, (ctx, v) = mixture(), inputs()
    assert encoding.form is Form.GENERAL
    expected = attention(ctx, v, encoding, causal=True)
    out = attention(ctx, v, encoding, causal=True, impl="parts")
    assert_close(out, expected)
    weights = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view_as(out)
    leaves = [ctx.q, ctx.k, v, *encoding.parameters()]
    for ours, theirs in zip(
        *(torch.autograd.grad((o * weights).sum(), leaves) for o in (out, expected)), strict=True
    ):
        assert_close(ours, theirs)


def test_mixtures_take_it_only_where_no_kernel_serves_all_heads():
    assert fastest(mixture(), CPU) == "parts"
    assert fastest(mixture(), torch.device("cuda")) == "parts"
    assert fastest(PerHead.Config().build(), CPU) == "explicit"


def test_dropout_reaches_every_group():
    encoding, (ctx, v) = mixture(), inputs()
    dropped = attention(ctx, v, encoding, causal=True, impl="parts", noise=Noise(0.5, 3, CPU))
    whole = attention(ctx, v, encoding, causal=True, impl="parts")
    assert ((dropped - whole).abs().amax((0, 2, 3)) > 0).all()
