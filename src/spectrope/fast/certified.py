"""Attention by plan: polynomial where that is certified, and, if asked for, only where it pays."""

from collections.abc import Sequence
from itertools import groupby

import torch
import torch.nn.functional as F
from torch import Tensor

from spectrope.attention.base import IMPLEMENTATIONS, Implementation, additive_mask, attention
from spectrope.core.errors import UnsupportedError
from spectrope.core.noise import Noise
from spectrope.encodings.base import Context, Encoding, Form
from spectrope.fast.certificate import Certificate, Geometry
from spectrope.fast.plan import FORMS, Plan, Rotated, plan, rotated
from spectrope.fast.polynomial import polynomial_attention
from spectrope.fast.running_sums import Rule


def planned_attention(ctx: Context, v: Tensor, encoding: Encoding, chosen: Plan) -> Tensor:
    """Attention as a plan says, head by head: (b, h, i, e).

    Args:
        ctx: What the plan was made from; its bounds hold for no other.
        v: Values, with shape (b, h, j, e).
        encoding: That of the plan.
        chosen: The plan.
    """
    exact = [plan.head for plan in chosen.heads if plan.choice == "exact"]
    if len(exact) == len(chosen.heads):
        return attention(ctx, v, encoding, causal=chosen.causal, impl="fastest")
    turned = rotated(ctx, encoding)
    pieces = [(exact, _exact(ctx, turned, v, encoding, chosen.causal, exact))] if exact else []
    for certificate, heads in _groups(chosen):
        pieces.append((heads, _fast(turned, v, chosen, certificate, heads)))
    order = torch.tensor([head for heads, _ in pieces for head in heads], device=v.device)
    return torch.cat([out for _, out in pieces], 1)[:, order.argsort()]


def _groups(chosen: Plan) -> list[tuple[Certificate, list[int]]]:
    """Heads with the same polynomial and rank."""
    fast = [(p.certificate, p.head) for p in chosen.heads if p.choice == "polynomial" and p.certificate]
    fast.sort(key=lambda item: (item[0].polynomial.coefficients, item[0].rank))
    return [
        (found[0][0], [head for _, head in found])
        for _, group in groupby(fast, key=lambda item: (item[0].polynomial.coefficients, item[0].rank))
        if (found := list(group))
    ]


def _exact(
    ctx: Context, turned: Rotated, v: Tensor, encoding: Encoding, causal: bool, heads: Sequence[int]
) -> Tensor:
    """Torch's exact kernel for some heads."""
    chosen = list(heads)
    bias, square = encoding.bias(ctx), ctx.q.shape[-2] == ctx.k.shape[-2]
    plain = bias is None and ctx.mask is None and (square or not causal)
    mask = None if plain else additive_mask(ctx, causal)
    if bias is not None:
        bias = bias.expand(-1, v.shape[1], -1, -1)[:, chosen]
        mask = bias if mask is None else bias + mask.to(bias.dtype)
    q, k = turned.q[:, chosen], turned.k[:, chosen]
    mask = None if mask is None else mask.to(q.dtype)
    return F.scaled_dot_product_attention(
        q, k, v[:, chosen], attn_mask=mask, is_causal=plain and causal, scale=1.0
    )


def _fast(turned: Rotated, v: Tensor, chosen: Plan, certificate: Certificate, heads: list[int]) -> Tensor:
    """Polynomial attention for some heads."""
    assert chosen.geometry is not None
    q, k = moved(turned, chosen.geometry, heads, certificate.rank)
    lags = None if chosen.lags is None else chosen.lags.of_heads(heads)
    rule = Rule(certificate.polynomial.coefficients, chosen.causal, lags)
    return polynomial_attention(q, k, v[:, heads], rule, turned.keys)


def moved(turned: Rotated, geometry: Geometry, heads: list[int], rank: int) -> tuple[Tensor, Tensor]:
    """Queries and centred keys of some heads, in `rank` coordinates."""
    dtype = torch.float64 if turned.q.dtype == torch.float64 else torch.float32
    q = turned.q[:, heads].to(dtype)
    k = turned.k[:, heads].to(dtype) - geometry.centre[:, heads].to(dtype)
    if rank == q.shape[-1]:
        return q, k
    basis = torch.stack([geometry.basis(head, rank) for head in heads]).to(dtype)
    return q @ basis, k @ basis


def polynomial(ctx: Context, v: Tensor, encoding: Encoding, causal: bool, noise: Noise | None) -> Tensor:
    """Polynomial attention of every head within the default tolerance, refused where that cannot be kept."""
    measured = plan(ctx, encoding, causal=causal)
    refused = [head for head in measured.heads if head.certificate is None]
    if refused and ctx.q.numel() > 0:
        first = refused[0]
        raise UnsupportedError(
            f"attention impl 'polynomial' cannot serve head {first.head}: {first.reason}; "
            "'auto' is exact there."
        )
    return planned_attention(ctx, v, encoding, measured.with_all_fast())


def certified(ctx: Context, v: Tensor, encoding: Encoding, causal: bool, noise: Noise | None) -> Tensor:
    """Polynomial attention where the default tolerance is certified and time is saved, exact elsewhere."""
    return planned_attention(ctx, v, encoding, plan(ctx, encoding, causal=causal))


IMPLEMENTATIONS.register("polynomial", Implementation(polynomial, forms=FORMS, dropout=False, exact=False))
IMPLEMENTATIONS.register("auto", Implementation(certified, forms=frozenset(Form), dropout=False, exact=False))
