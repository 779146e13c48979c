r"""Polynomial attention: weights are a polynomial of the logits, time and memory linear in the length.

`polynomial_attention` takes any polynomial. `planned_attention` follows an `AttentionPlan`, head by head, and
the implementations "polynomial" and "auto" make one with the default tolerance.
"""

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from spectrope.attention import IMPLEMENTATIONS, Implementation, additive_bias, attention
from spectrope.core import Noise, UnsupportedError, own_precision
from spectrope.encodings import Context, Encoding, Form
from spectrope.fast.certificate import Certificate
from spectrope.fast.chunkwise import PolynomialWeights, Tokens, chunkwise_sums
from spectrope.fast.planning import AttentionPlan, plan
from spectrope.fast.relative import relative_heads
from spectrope.fast.rotation import FORMS, Rotated, of_heads, projected, rotated
from spectrope.fast.toeplitz import fft_head


class _Normalised(torch.autograd.Function):
    r"""Weighted means :math:`O_i = \sum_j w_{ij} v_j / \sum_j w_{ij}` with `PolynomialWeights`, (b, g, i, e).

    With payloads :math:`u = [v; 1]` numerator and denominator D are one sum. The gradient of the sum is
    :math:`G = [dO; -\langle dO, O\rangle] / D`, and dq, dk and dv are sums again, whose states are computed
    anew: nothing but inputs, outputs and denominators is kept. Gradients of gradients are refused.
    """

    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, q: Tensor, k: Tensor, u: Tensor, weights: PolynomialWeights
    ) -> Tensor:
        queries, keys = _tokens(q, k, q[..., :0], u)
        sums = chunkwise_sums(weights, queries, keys, values=True, gradient=False).values
        assert sums is not None
        below = sums[:, -1:]
        below.masked_fill_(below == 0, 1.0)
        out = _rows(sums[:, :-1] / below)
        ctx.save_for_backward(q, k, u, out, _rows(below))
        ctx.weights = weights
        return out

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *grads: Tensor
    ) -> tuple[Tensor | None, ...]:
        q, k, u, out, below = ctx.saved_tensors
        grad = grads[0] / below
        payload = torch.cat([grad, -(grad * out).sum(-1, keepdim=True)], -1)
        queries, keys = _tokens(q, k, payload, u)
        of_queries = chunkwise_sums(ctx.weights, queries, keys, values=False, gradient=True)
        of_keys = chunkwise_sums(ctx.weights, keys, queries, values=True, gradient=True)
        return _rows(of_queries.gradient), _rows(of_keys.gradient), _rows(of_keys.values), None


def _tokens(q: Tensor, k: Tensor, payload: Tensor, u: Tensor) -> tuple[Tokens, Tokens]:
    """Queries and keys with their payloads, the last query at the position of the last key."""
    n = max(q.shape[2], k.shape[2])
    queries = Tokens(_columns(q), _columns(payload), n - q.shape[2], True)
    return queries, Tokens(_columns(k), _columns(u), n - k.shape[2], False)


def _columns(x: Float[Tensor, "b g n d"]) -> Float[Tensor, "b d g n"]:
    return x.permute(0, 3, 1, 2).contiguous()


def _rows(x: Float[Tensor, "b d g n"] | None) -> Float[Tensor, "b g n d"]:
    assert x is not None
    return x.permute(0, 2, 3, 1).contiguous()


def polynomial_attention(
    q: Float[Tensor, "b h i d"],
    k: Float[Tensor, "b m j d"],
    v: Float[Tensor, "b m j e"],
    weights: PolynomialWeights,
    keys: Bool[Tensor, "b j"] | None = None,
) -> Float[Tensor, "b h i e"]:
    r"""Weighted means of the values: :math:`o_i = \sum_j w_{ij} v_j / \sum_j w_{ij}`.

    Time is :math:`O(n\,(e + 1)\binom{d+g}{g})` for length n and degree g, memory O(n). Sums are taken in
    float32 at least. A query that sees no key gets 0. First derivatives are available, no higher ones.

    Args:
        q: Queries, rotated and scaled, with shape (b, h, i, d).
        k: Keys, rotated; m heads, each shared by h / m neighbouring heads of queries.
        v: Values, with shape (b, m, j, e).
        weights: The weights w of pairs, the last query being at the last key.
        keys: True at keys that may be seen, with shape (b, j); None allows all. Other values are never read.
    """
    batch, heads = q.shape[:2]
    dtype = torch.float64 if q.dtype == torch.float64 else torch.float32
    u = torch.cat([v.to(dtype), v.new_ones(*v.shape[:-1], 1, dtype=dtype)], -1)
    k = k.to(dtype)
    if keys is not None:
        u, k = (torch.where(keys[:, None, :, None], x, 0.0) for x in (u, k))
    if weights.lags is not None and k.shape[1] < heads:
        u, k = (x.repeat_interleave(heads // x.shape[1], 1) for x in (u, k))
    grouped = q.to(dtype).unflatten(1, (k.shape[1], -1)).flatten(0, 1)
    with own_precision(q):
        out = _Normalised.apply(grouped, k.flatten(0, 1)[:, None], u.flatten(0, 1)[:, None], weights)
    assert isinstance(out, Tensor)
    return out.unflatten(0, (batch, -1)).flatten(1, 2).to(v.dtype)


def planned_attention(
    ctx: Context, v: Float[Tensor, "b h j e"], encoding: Encoding, made: AttentionPlan
) -> Float[Tensor, "b h i e"]:
    """Attention by a plan, head by head.

    A query that sees no key gets 0 from polynomial heads, and 0 or NaN from exact ones, by what computes
    them.

    Args:
        ctx: The context that the plan was made from; its bounds hold for no other.
        v: Values, with shape (b, h, j, e).
        encoding: The encoding that the plan was made for.
        made: The plan.
    """
    exact = [head.head for head in made.heads if head.choice == "exact"]
    if len(exact) == len(made.heads):
        return attention(ctx, v, encoding, causal=made.causal, impl="fastest")
    turned = rotated(ctx, encoding)
    pieces = [(exact, _exact(ctx, turned, v, encoding, made.causal, exact))] if exact else []
    for certificate, heads in _groups(made):
        pieces.append((heads, _polynomial(turned, v, made, certificate, heads)))
    for head in made.heads:
        if head.choice == "fft":
            pieces.append(([head.head], fft_head(ctx, turned, v, encoding, made, head)))
    if unturned := [head for head in made.heads if head.choice == "relative"]:
        outputs = relative_heads(ctx, v, encoding, made, unturned)
        pieces.append(([head.head for head in unturned], outputs))
    if len(pieces) == 1:
        return pieces[0][1]
    order = torch.tensor([head for heads, _ in pieces for head in heads], device=v.device)
    return torch.cat([out for _, out in pieces], 1)[:, order.argsort()]


def _groups(made: AttentionPlan) -> list[tuple[Certificate, list[int]]]:
    """Heads with the same polynomial and rank."""

    def key(item: tuple[Certificate, int]) -> tuple[tuple[float, ...], int]:
        return item[0].polynomial.coefficients, item[0].rank

    chosen = [(h.certificate, h.head) for h in made.heads if h.choice == "polynomial" and h.certificate]
    groups = (list(group) for _, group in groupby(sorted(chosen, key=key), key=key))
    return [(group[0][0], [head for _, head in group]) for group in groups]


def _exact(
    ctx: Context, turned: Rotated, v: Tensor, encoding: Encoding, causal: bool, heads: Sequence[int]
) -> Tensor:
    """Torch's exact kernel for some heads."""
    bias, is_causal = additive_bias(ctx, encoding, causal)
    if bias is not None:
        bias = bias.to(turned.q.dtype)
        bias = of_heads(bias, heads) if bias.ndim == 4 and bias.shape[1] > 1 else bias
    q, k, v = (of_heads(x, heads) for x in (turned.q, turned.k, v))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, is_causal=is_causal, scale=1.0)


def _polynomial(
    turned: Rotated, v: Tensor, made: AttentionPlan, certificate: Certificate, heads: list[int]
) -> Tensor:
    """Polynomial attention for some heads."""
    assert made.bounds is not None
    q, k = projected(turned, made.bounds, heads, certificate.rank)
    lags = None if made.lags is None else made.lags.of_heads(heads)
    weights = PolynomialWeights(certificate.polynomial.coefficients, made.causal, lags)
    return polynomial_attention(q, k, of_heads(v, heads), weights, turned.keys)


def polynomial(ctx: Context, v: Tensor, encoding: Encoding, causal: bool, noise: Noise | None) -> Tensor:
    """Polynomial attention of every head within the default tolerance, by sums over blocks.

    Raises:
        UnsupportedError: If some head cannot keep it.
    """
    made = plan(ctx, encoding, causal=causal, kernels=("polynomial",))
    uncertified = next((head for head in made.heads if head.certificate is None), None)
    if uncertified is not None and ctx.q.numel() > 0:
        raise UnsupportedError(
            f"attention impl 'polynomial' cannot serve head {uncertified.head}: {uncertified.reason}; "
            "'auto' is exact there."
        )
    return planned_attention(ctx, v, encoding, made.with_all_fast())


def auto(ctx: Context, v: Tensor, encoding: Encoding, causal: bool, noise: Noise | None) -> Tensor:
    """Polynomial attention where the default tolerance is certified at a lower cost, exact elsewhere.

    Sums are taken over blocks or by FFT, whichever is predicted to cost less.
    """
    return planned_attention(ctx, v, encoding, plan(ctx, encoding, causal=causal))


IMPLEMENTATIONS.register("polynomial", Implementation(polynomial, forms=FORMS, dropout=False, exact=False))
IMPLEMENTATIONS.register("auto", Implementation(auto, forms=frozenset(Form), dropout=False, exact=False))
