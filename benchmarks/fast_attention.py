"""Polynomial attention against torch's exact kernel: forward, with backward, and by length.

`python -m benchmarks.fast_attention` takes about five minutes to 262,144 tokens; `--longest 16384` does less.
Each case is one head with RoPE whose logits reach 0.495 by their norms; a plan must certify an error of 1e-2
max|v|, the last queries' outputs must keep it, and gradients must point where exact ones do. The fast side
rotates queries and keys; the plan is made before and timed by itself. The speed-up that each plan predicts is
printed and stored beside the measured one.

Up to 16,384 tokens exact attention is timed as a whole. Beyond, it is timed on 1,024 queries and its time
multiplied by n / 1,024: these see all n keys without a mask, and n / 2 keys, the mean number, where attention
is causal. Its rotation is left out, and with a backward pass all three gradients are taken. `share` in the
stored rows is the part that was timed.
"""

import argparse
import math
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import product
from typing import Any

import torch
import torch.nn.functional as F
from benchmarks.harness import Case, Row, Side, run
from torch import Tensor

from spectrope.core.device import choose_device
from spectrope.encodings.base import Context
from spectrope.encodings.rope import RoPE
from spectrope.fast.planning import AttentionPlan, plan, rotated
from spectrope.fast.polynomial import planned_attention

DEVICE = choose_device()
PREDICTED: dict[str, float] = {}  # By label: the speed-up of the forward pass that the plan predicts.
REACH, TOLERANCE, GATED = 0.495, 1e-2, 256
LENGTHS, WHOLE, SLICE = (4096, 16_384, 65_536, 262_144), 16_384, 1024
GOALS = {(16, 65_536, False): 40, (16, 65_536, True): 15, (64, 65_536, False): 4, (64, 65_536, True): 5}
GOALS |= {(64, 262_144, False): 14, (64, 262_144, True): 16}
GOALS |= {(16, 4096, causal): 1 for causal in (False, True)} | {
    (64, WHOLE, causal): 1 for causal in (False, True)
}
Layer = tuple[Context, Tensor, RoPE]


@lru_cache(maxsize=1)
def layer(dim: int, n: int, reach: float = REACH) -> Layer:
    """Queries and keys whose products, scaled, reach a modulus, and values."""
    draw = torch.Generator().manual_seed(dim)
    q, k, v = (torch.randn(1, 1, n, dim, generator=draw).to(DEVICE) for _ in range(3))
    q = q * (reach * math.sqrt(dim) / (q.norm(dim=-1).max() * k.norm(dim=-1).max()))
    pos = torch.arange(n, device=DEVICE)[None]
    leaves = [x.requires_grad_() for x in (q, k, v)]
    return Context(leaves[0], leaves[1], pos, pos), leaves[2], RoPE(RoPE.Config(head_dim=dim)).to(DEVICE)


@lru_cache(maxsize=1)
def planned(dim: int, n: int, causal: bool, reach: float = REACH) -> AttentionPlan:
    """The plan that forward and backward cases share."""
    ctx, _, encoding = layer(dim, n, reach)
    return plan(ctx, encoding, TOLERANCE, causal=causal).with_all_fast()


def promised(made: AttentionPlan) -> None:
    """Raise unless every head is certified within the tolerance."""
    assert all(head.certificate is not None for head in made.heads), made.heads
    assert made.error_bound <= TOLERANCE, made.error_bound


def kept(one: Layer, made: AttentionPlan) -> None:
    """Raise unless the plan keeps the tolerance, and the last queries' outputs keep the plan's bound."""
    ctx, v, encoding = one
    promised(made)
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


def aligned(dim: int, causal: bool) -> None:
    """Raise unless gradients of 2,048 tokens have a cosine of 0.999 with those of exact attention."""
    ctx, v, encoding = one = layer.__wrapped__(dim, 2048)
    made = plan(ctx, encoding, TOLERANCE, causal=causal).with_all_fast()
    upstream = torch.randn(v.shape, generator=torch.Generator().manual_seed(0)).to(DEVICE)
    grads = [
        torch.autograd.grad((forward() * upstream).sum(), leaves(one))
        for forward in (lambda: planned_attention(ctx, v, encoding, made), lambda: exact(one, causal))
    ]
    for ours, theirs in zip(*grads, strict=True):
        cosine = F.cosine_similarity(ours.flatten(), theirs.flatten(), dim=0)
        assert cosine >= 0.999, f"cosine of gradients {cosine:.5f}"


def leaves(one: Layer) -> list[Tensor]:
    """What gradients are taken of."""
    return [one[0].q, one[0].k, one[1]]


def exact(one: Layer, causal: bool) -> Tensor:
    """Exact attention as a whole."""
    ctx, v, encoding = one
    q, k = (encoding.rotate(x, ctx.q_pos, "query") for x in (ctx.q, ctx.k))
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal)


def exact_slice(one: Layer, causal: bool) -> Tensor:
    """Some queries' exact attention to as many keys as queries see on average."""
    ctx, v, _ = one
    keys = v.shape[2] // (2 if causal else 1)
    return F.scaled_dot_product_attention(ctx.q[:, :, :SLICE], ctx.k[:, :, :keys], v[:, :, :keys])


def case(dim: int, n: int, causal: bool, backward: bool, reach: float = REACH) -> Case:
    """One row."""
    one, made = layer(dim, n, reach), planned(dim, n, causal, reach)
    reference = exact if n <= WHOLE else exact_slice

    def call(forward: Callable[[], Tensor]) -> object:
        if backward:
            return torch.autograd.grad(forward().sum(), leaves(one))
        with torch.no_grad():
            return forward()

    goal = GOALS.get((dim, n, causal), 0) / (2 if backward else 1) if reach == REACH else 0
    name = label(dim, n, causal, backward) + (f", |x| {reach:g}" if reach != REACH else "")
    predicted = made.heads[0].speedup_estimate
    if predicted is not None and not backward:
        PREDICTED[name] = predicted
    return Case(
        name,
        (lambda: aligned(dim, causal)) if backward else (lambda: kept(one, made)),
        lambda: call(lambda: planned_attention(one[0], one[1], one[2], made)),
        lambda: call(lambda: reference(one, causal)),
        f">= {goal:g}x" if goal else "",
        share=1.0 if n <= WHOLE else SLICE / n,
        repeats=1 if n == LENGTHS[-1] else None,
    )


def label(dim: int, n: int, causal: bool, backward: bool) -> str:
    """The name of a row."""
    return f"{'causal' if causal else 'all'}, d {dim}, n {n:,}{', backward' * backward}"


def planning(dim: int, n: int) -> Case:
    """Measuring the logits and choosing, which a plan adds to every new input."""
    one = layer(dim, n)
    again = lambda: plan(one[0], one[2], TOLERANCE, causal=True)  # noqa: E731
    return Case(f"plan, d {dim}, n {n:,}", lambda: promised(planned(dim, n, True)), again)


def cases(longest: int) -> Iterator[Case]:
    """Lengths from 4,096 on, four times as long each."""
    for dim in (16, 64):
        for n in (length for length in LENGTHS if length <= longest):
            for causal in (False, True):
                for backward in (False, True):
                    yield case(dim, n, causal, backward)
            yield planning(dim, n)
    for n in (WHOLE, 4 * WHOLE):
        if n <= longest:
            yield case(16, n, True, False, reach=1.4)


def summary(rows: list[Row]) -> dict[str, Any]:
    """Predicted speed-ups beside the measured ones, and the growth of time and memory with the length."""
    measured = {row.label: row.ratio for row in rows if row.label in PREDICTED and row.ratio is not None}
    for name, ratio in measured.items():
        print(f"{name:>36} {ratio:.2f}x measured, {PREDICTED[name]:.2f}x predicted")
    return {"predicted": {name: PREDICTED[name] for name in measured}} | growth(rows)


def growth(rows: list[Row]) -> dict[str, Any]:
    """By which powers of the length the fast side's time and memory grow from 16,384 tokens on."""
    powers: dict[str, dict[str, float]] = {}
    for dim, causal, backward in product((16, 64), (False, True), (False, True)):
        names = [label(dim, n, causal, backward) for n in (WHOLE, LENGTHS[-1])]
        ends = [row.fast for name in names for row in rows if row.label == name]
        if len(ends) == 2:
            powers[names[1]] = _powers(*ends)
    for name, grown in powers.items():
        print(f"{name:>36} grows as", ", ".join(f"{what} n^{power:.2f}" for what, power in grown.items()))
    return {"exponents": powers}


def _powers(first: Side, last: Side) -> dict[str, float]:
    times = math.log(LENGTHS[-1] / WHOLE)
    grown = {"seconds": math.log(last.seconds / first.seconds) / times}
    if first.peak_mib and last.peak_mib:
        grown["peak_mib"] = math.log(last.peak_mib / first.peak_mib) / times
    return grown


def main(arguments: Sequence[str] | None = None) -> None:
    """Time all cases up to a length, and store them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--longest", type=int, default=LENGTHS[-1])
    parser.add_argument("--repeats", type=int, default=2)
    chosen = parser.parse_args(arguments)
    run("fast_attention", cases(chosen.longest), threads=1, repeats=chosen.repeats, summary=summary)


if __name__ == "__main__":
    main()
