"""The certified bound over ten thousand cases, with the values that move each mean farthest."""

import dataclasses
import sys

import torch
from torch import Tensor

from spectrope.attention import attention
from spectrope.encodings.alibi import ALiBi
from spectrope.encodings.base import Context, Encoding
from spectrope.encodings.nope import NoPE
from spectrope.encodings.rope import RoPE
from spectrope.encodings.t5 import T5
from spectrope.fast import certificate, plan
from spectrope.fast.minimax import exp_polynomial
from spectrope.fast.planning import AttentionPlan, rotated
from spectrope.fast.polynomial import planned_attention, projected

EXAMPLES, HEADS, N, DIM = 84, 3, 24, 4
TOLERANCES, SCALES = (1e-3, 1e-2, 0.3), (0.003, 0.01, 0.03, 0.06, 0.1)
MANY, FEW = range(8), range(3, 6)  # Seeds.
ENCODINGS = {
    "nope": NoPE(NoPE.Config()),
    "rope": RoPE(RoPE.Config(head_dim=DIM)),
    "alibi": ALiBi(ALiBi.Config(n_heads=HEADS)),
    "t5": T5(T5.Config(n_heads=HEADS)).requires_grad_(False),
}


def context(seed: int) -> Context:
    """Examples of many sizes: Gaussian keys, keys far from the origin, few directions, one long key."""
    draw = torch.Generator().manual_seed(seed)
    q, k = torch.randn(2, EXAMPLES, HEADS, N, DIM, generator=draw)
    k[::4] += 4 * torch.randn(len(k[::4]), HEADS, 1, DIM, generator=draw)
    k[1::4, ..., 2:] *= 0.01
    k[2::4, :, 0] *= 3
    sizes = torch.rand(EXAMPLES, 1, 1, 1, generator=draw)
    pos = torch.arange(N)[None]
    return Context(SCALES[seed % 5] * sizes * q, k, pos, pos)


def worst_values(ctx: Context, encoding: Encoding, made: AttentionPlan) -> Tensor:
    """For some queries each: +1 where a key's weight comes out too large, -1 where too small."""
    assert made.bounds is not None
    turned = rotated(ctx, encoding)
    values = []
    for head, found in enumerate(made.heads):
        polynomial = (found.certificate or made.heads[0].certificate).polynomial
        q, k = projected(turned, made.bounds, [head], DIM)
        x = (q[:, :, ::6] @ k.mT).double()
        approximate = sum(a * x**m for m, a in enumerate(polynomial.coefficients))
        values.append(torch.sign(approximate * (-x).exp() - 1).mT)
    return torch.cat(values, 1).float()


def shares(seed: int, name: str, causal: bool) -> Tensor:
    """Of each certified head of each example: its error over its bound."""
    ctx, encoding = context(seed), ENCODINGS[name]
    made = plan(ctx, encoding, TOLERANCES[seed % 3], causal=causal).with_all_fast()
    fast = [head.head for head in made.heads if head.certificate is not None]
    if not fast:
        return torch.zeros(0)
    v = worst_values(ctx, encoding, made)
    out = planned_attention(ctx, v, encoding, made).double()
    wide = dataclasses.replace(ctx, q=ctx.q.double(), k=ctx.k.double())
    truth = attention(wide, v.double(), encoding, causal=causal)
    bounds = torch.tensor([made.heads[head].certificate.error_bound for head in fast], dtype=torch.float64)
    return ((out - truth).abs().amax((2, 3))[:, fast] / v.abs().amax((2, 3))[:, fast] / bounds).flatten()


def test_projections_are_rounded_once():
    """Certificates allow for that; products in float32 would err by up to the root of the rank more."""
    draw = torch.Generator().manual_seed(0)
    q, k = torch.randn(2, 2, HEADS, 40, 64, generator=draw)
    pos = torch.arange(40)[None]
    ctx = Context(0.05 * q, k, pos, pos)
    made = plan(ctx, ENCODINGS["nope"], 0.3, causal=False)
    assert made.bounds is not None
    turned, rank = rotated(ctx, ENCODINGS["nope"]), 32
    found = projected(turned, made.bounds, [0, 2], rank)
    for side, vectors in zip(found, (turned.q, turned.k - made.bounds.centre.float()), strict=True):
        for place, head in enumerate((0, 2)):
            exact = vectors[:, head].double() @ made.bounds.basis(head, rank).double()
            assert ((side[:, place] - exact).abs() <= 2**-24 * exact.abs()).all()


def every_case(seeds: range) -> Tensor:
    settings = ((s, name, causal) for s in seeds for name in ENCODINGS for causal in (True, False))
    return torch.cat([shares(*setting) for setting in settings])


def test_none_of_ten_thousand_cases_violates_the_bound():
    found = every_case(MANY)
    assert len(found) >= 10_000
    assert found.max() <= 1
    assert found.max() > 0.3  # or the bound says little


def test_the_cases_catch_a_polynomial_that_is_fitted_to_too_short_a_range(monkeypatch):
    def narrow(degree, low, high):
        right = exp_polynomial(degree, low, high)
        return dataclasses.replace(exp_polynomial(degree, low / 4, high / 4), low=right.low, high=right.high)

    monkeypatch.setattr(certificate, "exp_polynomial", narrow)
    assert every_case(FEW).max() > 1


def test_the_cases_catch_a_range_that_is_measured_too_short(monkeypatch):
    bound_logits = certificate.bound_logits

    def short(*given, **named):
        found = bound_logits(*given, **named)
        return dataclasses.replace(found, reach_bound=found.reach_bound / 3, norm_bound=found.norm_bound / 3)

    monkeypatch.setattr(sys.modules[AttentionPlan.__module__], "bound_logits", short)
    assert every_case(FEW).max() > 1
