r"""Attention whose weights are a polynomial of the logits, in time and memory linear in the length."""

from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from spectrope.core.autocast import own_precision
from spectrope.fast.running_sums import Rule, Tokens, sweep


class _Normalised(torch.autograd.Function):
    r"""Weighted means :math:`O_i = \sum_j w_{ij} v_j / \sum_j w_{ij}` under a `Rule`, (b, g, i, e).

    With payloads :math:`u = [v; 1]` the sums are one sweep. The gradient of the sums is
    :math:`G = [dO; -\langle dO, O\rangle] / D`, D being the denominator, and dq, dk and dv are sweeps again:
    all states are computed anew, so nothing but inputs, outputs and denominators is kept.
    """

    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, q: Tensor, k: Tensor, u: Tensor, rule: Rule
    ) -> Tensor:
        places = max(q.shape[2], k.shape[2])
        queries = Tokens(_columns(q), _columns(q[..., :0]), places - q.shape[2], True)
        keys = Tokens(_columns(k), _columns(u), places - k.shape[2], False)
        sums = sweep(rule, queries, keys, values=True, gradient=False).values
        assert sums is not None
        below = sums[:, -1:]
        below.masked_fill_(below == 0, 1.0)
        out = _rows(sums[:, :-1] / below)
        ctx.save_for_backward(q, k, u, out, _rows(below))
        ctx.rule = rule
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        q, k, u, out, below = ctx.saved_tensors
        grad = grads[0] / below
        payload = torch.cat([grad, -(grad * out).sum(-1, keepdim=True)], -1)
        places = max(q.shape[2], k.shape[2])
        queries = Tokens(_columns(q), _columns(payload), places - q.shape[2], True)
        keys = Tokens(_columns(k), _columns(u), places - k.shape[2], False)
        of_queries = sweep(ctx.rule, queries, keys, values=False, gradient=True)
        of_keys = sweep(ctx.rule, keys, queries, values=True, gradient=True)
        return _rows(of_queries.gradient), _rows(of_keys.gradient), _rows(of_keys.values), None


def _columns(x: Float[Tensor, "b g n d"]) -> Float[Tensor, "b d g n"]:
    return x.permute(0, 3, 1, 2).contiguous()


def _rows(x: Float[Tensor, "b d g n"] | None) -> Float[Tensor, "b g n d"]:
    assert x is not None
    return x.permute(0, 2, 3, 1).contiguous()


def polynomial_attention(
    q: Float[Tensor, "b h i d"],
    k: Float[Tensor, "b m j d"],
    v: Float[Tensor, "b m j e"],
    rule: Rule,
    keys: Bool[Tensor, "b j"] | None = None,
) -> Float[Tensor, "b h i e"]:
    r"""Means of the values with weights :math:`T_h(i-j)\,P(\langle q_i, k_j\rangle)`.

    Time is :math:`O(n\,(e + 1)\binom{d+g}{g})` for length n and degree g, memory O(n). Sums are taken in
    float32 at least. A query that sees no key gets 0.

    Args:
        q: Queries, rotated and scaled, with shape (b, h, i, d).
        k: Keys, rotated; m heads, each shared by h / m neighbouring heads of queries.
        v: Values, with shape (b, m, j, e).
        rule: The polynomial, whether attention is causal (the last query is at the last key), lag weights.
        keys: True at keys that may be seen, with shape (b, j); None allows all. Others are never read.
    """
    batch, heads = q.shape[:2]
    dtype = torch.float64 if q.dtype == torch.float64 else torch.float32
    u = torch.cat([v.to(dtype), v.new_ones(*v.shape[:-1], 1, dtype=dtype)], -1)
    k = k.to(dtype)
    if keys is not None:
        u, k = (torch.where(keys[:, None, :, None], x, 0.0) for x in (u, k))
    if rule.lags is not None and k.shape[1] < heads:
        u, k = (x.repeat_interleave(heads // x.shape[1], 1) for x in (u, k))
    grouped = q.to(dtype).unflatten(1, (k.shape[1], -1)).flatten(0, 1)
    with own_precision(q):
        out = _Normalised.apply(grouped, k.flatten(0, 1)[:, None], u.flatten(0, 1)[:, None], rule)
    assert isinstance(out, Tensor)
    return out.unflatten(0, (batch, -1)).flatten(1, 2).to(v.dtype)
