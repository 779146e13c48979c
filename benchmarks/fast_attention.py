"""Polynomial attention against torch's exact kernel: forward, with backward, and by length.

`python -m benchmarks.fast_attention` goes to 16,384 tokens; `--longest 262144` goes on, where exact attention
takes minutes a run. All figures are measured, none is extrapolated. Each case is one head with RoPE whose
logits reach 0.5 by their norms; a plan must certify an error of 1e-2 max|v|, and the last queries' outputs
must keep it.
"""

import argparse
import math
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from benchmarks.harness import Case, run
from torch import Tensor

from spectrope.attention.certified import planned_attention
from spectrope.attention.plan import Plan, plan, rotated
from spectrope.core.device import choose_device
from spectrope.encodings.base import Context
from spectrope.encodings.rotary import Rotary

DEVICE = choose_device()
REACH, TOLERANCE, SHORTEST, GATED = 0.495, 1e-2, 4096, 256
GOALS = {(16, 65_536, False): 40, (16, 65_536, True): 15, (64, 65_536, False): 4, (64, 65_536, True): 5}
GOALS |= {(64, 262_144, False): 14, (64, 262_144, True): 16}


def layer(dim: int, n: int) -> tuple[Context, Tensor, Rotary]:
    """Queries and keys whose products, scaled, reach 0.495 in modulus, and values."""
    draw = torch.Generator().manual_seed(dim)
    q, k, v = (torch.randn(1, 1, n, dim, generator=draw).to(DEVICE) for _ in range(3))
    q = q * (REACH * math.sqrt(dim) / (q.norm(dim=-1).max() * k.norm(dim=-1).max()))
    pos = torch.arange(n, device=DEVICE)[None]
    leaves = [x.requires_grad_() for x in (q, k, v)]
    return Context(leaves[0], leaves[1], pos, pos), leaves[2], Rotary(Rotary.Config(head_dim=dim)).to(DEVICE)


def kept(ctx: Context, v: Tensor, encoding: Rotary, made: Plan) -> None:
    """Raise unless the plan keeps the tolerance, and the last queries' outputs keep the plan's bound."""
    assert all(head.certificate is not None for head in made.heads), made.heads
    assert made.error_bound <= TOLERANCE, made.error_bound
    with torch.no_grad():
        out = planned_attention(ctx, v, encoding, made)[:, :, -GATED:].double()
        turned = rotated(ctx, encoding)
        logits = turned.q[:, :, -GATED:].double() @ turned.k.double().mT
    if made.causal:
        logits = logits.masked_fill(
            torch.ones_like(logits).triu(logits.shape[-1] - GATED + 1) > 0, -torch.inf
        )
    error = (out - logits.softmax(-1) @ v.double()).abs().max()
    assert error <= made.error_bound * v.abs().max(), f"error {error:.2e}, bound {made.error_bound:.2e}"


def calls(dim: int, n: int, causal: bool, backward: bool) -> tuple[Callable[[], object], ...]:
    """The gate, the fast call and the exact one."""
    ctx, v, encoding = layer(dim, n)
    made = plan(ctx, encoding, TOLERANCE, causal=causal).with_all_fast()
    leaves = [ctx.q, ctx.k, v]

    def exact() -> Tensor:
        q, k = (encoding.rotate(x, ctx.q_pos, "query") for x in (ctx.q, ctx.k))
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal)

    def call(forward: Callable[[], Tensor]) -> object:
        if backward:
            return torch.autograd.grad(forward().sum(), leaves)
        with torch.no_grad():
            return forward()

    return (
        lambda: kept(ctx, v, encoding, made),
        lambda: call(lambda: planned_attention(ctx, v, encoding, made)),
        lambda: call(exact),
    )


def planning(dim: int, n: int) -> Case:
    """Measuring the logits and choosing, which a plan adds to every new input."""
    ctx, v, encoding = layer(dim, n)
    made = plan(ctx, encoding, TOLERANCE, causal=True)
    again = lambda: plan(ctx, encoding, TOLERANCE, causal=True)  # noqa: E731
    return Case(f"plan, d {dim}, n {n:,}", lambda: kept(ctx, v, encoding, made.with_all_fast()), again)


def cases(longest: int) -> Iterator[Case]:
    """Lengths from 4,096 on, four times as long each."""
    for dim in (16, 64):
        n = SHORTEST
        while n <= longest:
            for causal in (False, True):
                for backward in (False, True):
                    gate, fast, exact = calls(dim, n, causal, backward)
                    goal = GOALS.get((dim, n, causal), 0) / (2 if backward else 1)
                    label = f"{'causal' if causal else 'all'}, d {dim}, n {n:,}{', backward' * backward}"
                    yield Case(label, gate, fast, exact, f">= {goal:g}x" if goal else "")
            yield planning(dim, n)
            n *= 4


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--longest", type=int, default=16_384)
    parser.add_argument("--repeats", type=int, default=3)
    chosen = parser.parse_args()
    run("fast_attention", cases(chosen.longest), threads=1, repeats=chosen.repeats)
