"""Attention by batched products with an explicit backward pass, the fastest implementation on CPUs."""

import math
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from spectrope.attention.base import IMPLEMENTATIONS, Implementation, additive_mask
from spectrope.core import Noise
from spectrope.encodings import Context, Encoding, Form

# Entries of the pattern at once: 2 MiB in float32, which a core's cache holds, or enough to fill a GPU.
CACHED_ENTRIES = {"cpu": 2**19, "cuda": 2**26}
# Blocks of causal queries, each of which leaves out later keys; smaller blocks cost more than they save.
MOST_BLOCKS, LEAST_ROWS = 4, 64
VECTOR = 16  # Numbers in float32 that the widest registers hold.


class _Explicit(torch.autograd.Function):
    r"""Softmax attention that keeps the pattern, (b, h, i, j), and nothing else of that size.

    With :math:`A` the pattern, :math:`M` the dropout mask over :math:`1-p` and :math:`O = (A \circ M) V`, the
    gradient of the logits is :math:`dL = (A\circ M)\circ(dO\,V^\top) - A \circ \mathrm{rowsum}(dO \circ O)`.
    The mask is stored as the sign of the pattern, whose entries are not negative. A few examples are computed
    at a time, so that their part of the pattern stays in the processor's cache. Softmax and its gradient are
    computed in float32 at least: in bfloat16, torch takes up to seven times as long for rows of most lengths.
    """

    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, noise: Noise | None
    ) -> Tensor:
        pattern = q.new_empty(*q.shape[:3], k.shape[2])
        out = q.new_empty(*q.shape[:3], v.shape[3])
        spare = torch.empty_like(pattern[: _examples(pattern)])
        wide = _wide(spare, -spare.shape[-1] % VECTOR)
        for s in pieces(pattern):
            a, kept = pattern[s], spare[: len(pattern[s])]
            _bmm(q[s], k[s].mT, a)
            _softmax(a, None if bias is None else _of(bias, s), wide[: len(a)])
            if noise is None:
                kept = a
            else:
                a.copysign_(noise.keep(a.shape, a.dtype).sub_(0.5))
                torch.clamp_min(a, 0, out=kept)
            _bmm(kept, v[s], out[s])
        if noise is not None:
            out.mul_(noise.scale)
        ctx.save_for_backward(q, k, v, bias, pattern, out)
        ctx.scale = None if noise is None else noise.scale
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, bias, pattern, out = ctx.saved_tensors
        grad = grads[0].contiguous()
        delta = (grad * out).sum(-1, keepdim=True, dtype=_wide_dtype(grad))
        if ctx.scale is not None:
            grad = grad * ctx.scale
        dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
        db = None
        if ctx.needs_input_grad[3]:
            db = torch.zeros_like(bias, dtype=torch.promote_types(bias.dtype, torch.float32))
        spare = torch.empty_like(pattern[: _examples(pattern)])
        d_spare = torch.empty_like(spare)
        wide = _wide(d_spare)
        for s in pieces(pattern):
            a, kept, dl, dw = (x[: len(pattern[s])] for x in (pattern[s], spare, d_spare, wide))
            _bmm(grad[s], v[s].mT, dl)
            if ctx.scale is None:
                _bmm(a.mT, grad[s], dv[s])
                dl.copy_(dw.copy_(dl).sub_(delta[s]).mul_(a))
            else:
                torch.clamp_min(a, 0, out=kept)
                _bmm(kept.mT, grad[s], dv[s])
                dw.copy_(dl.mul_(kept)).addcmul_(torch.abs(a, out=kept).to(dw.dtype), delta[s], value=-1)
                dl.copy_(dw)
            _bmm(dl, k[s], dq[s])
            _bmm(dl.mT, q[s], dk[s])
            if db is not None:
                _of(db, s).add_(dl.sum_to_size(_of(db, s).shape))
        return dq, dk, dv, None if db is None else db.to(bias.dtype), None


def _bmm(x: Tensor, y: Tensor, out: Tensor) -> None:
    """`out = x @ y` over two leading axes, into memory that is there already."""
    torch.bmm(x.flatten(0, 1), y.flatten(0, 1), out=out.view(-1, *out.shape[2:]))


def _wide_dtype(x: Tensor) -> torch.dtype:
    return torch.promote_types(x.dtype, torch.float32)


def _wide(x: Tensor, more: int = 0) -> Tensor:
    """Memory for x in float32 at least, with rows longer by `more`; x itself where it is that already."""
    if _wide_dtype(x) == x.dtype and not more:
        return x
    return x.new_empty(*x.shape[:-1], x.shape[-1] + more, dtype=_wide_dtype(x))


def _softmax(x: Tensor, bias: Tensor | None, wide: Tensor) -> None:
    """Softmax of the rows of x + bias, in place of x; `wide` is room for it, whose rows may be longer."""
    if wide.shape == x.shape and wide.dtype == x.dtype:
        wide = x
    rows = wide[..., : x.shape[-1]]
    rows.copy_(x) if bias is None else torch.add(x, bias, out=rows)
    wide[..., x.shape[-1] :] = -torch.inf
    torch.softmax(wide, -1, out=wide)
    x.copy_(rows)


def _examples(pattern: Tensor) -> int:
    return max(1, CACHED_ENTRIES[pattern.device.type] // max(1, math.prod(pattern.shape[1:])))


def pieces(pattern: Tensor) -> Iterator[slice]:
    """Examples that are computed at once."""
    size = _examples(pattern)
    return (slice(start, start + size) for start in range(0, len(pattern), size))


def _of(bias: Tensor, piece: slice) -> Tensor:
    return bias if bias.shape[0] == 1 else bias[piece]


def explicit(ctx: Context, v: Tensor, encoding: Encoding, causal: bool, noise: Noise | None) -> Tensor:
    """Rotated queries and keys, one additive bias that carries the mask too, and `_Explicit`.

    Without dropout, causal queries are computed in blocks that leave out later keys; with it, the whole
    pattern is computed at once, so that its masks are those of the reference.
    """
    q = encoding.rotate(encoding.scaled(ctx.q) * ctx.scale, ctx.q_pos, "query")
    k = encoding.rotate(ctx.k, ctx.k_pos, "key")
    bias, mask = encoding.bias(ctx), additive_mask(ctx, causal)
    if bias is not None:
        bias = (bias if mask is None else bias + mask.to(bias.dtype)).to(q.dtype)
    elif mask is not None:  # The sum of bfloat16 and float32 is twice as fast as that of bfloat16.
        bias = mask.to(_wide_dtype(q))
    if bias is not None:
        bias = bias[(None,) * (4 - bias.ndim)]
    if causal and bias is not None and noise is None and q.shape[2] == k.shape[2]:
        return _causal(q, k, v, bias)
    return _attend(q, k, v, bias, noise)


def _causal(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
    """Attention in blocks of queries, each over the keys up to its end."""
    n = q.shape[2]
    size = -(-n // max(1, min(MOST_BLOCKS, n // LEAST_ROWS)))
    blocks = zip(range(size, n + size, size), q.split(size, 2), bias.split(size, 2), strict=True)
    outs = [_attend(rows, k[:, :, :end], v[:, :, :end], b[..., :end], None) for end, rows, b in blocks]
    return outs[0] if len(outs) == 1 else torch.cat(outs, 2)


def _attend(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, noise: Noise | None) -> Tensor:
    differentiable = any(x is not None and x.requires_grad for x in (q, k, v, bias))
    if noise is None and not (differentiable and torch.is_grad_enabled()):
        return _without_gradient(q, k, v, bias)
    out = _Explicit.apply(q.contiguous(), k.contiguous(), v.contiguous(), bias, noise)
    assert isinstance(out, Tensor)
    return out


def _without_gradient(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
    """Attention that keeps no pattern, whose rows are padded to whole vectors.

    Queries come in blocks whose patterns in one example fit into a cache.
    """
    more = -k.shape[2] % VECTOR
    if more:
        bias = F.pad(q.new_zeros(1, 1, 1, k.shape[2]) if bias is None else bias, (0, more), value=-torch.inf)
        k, v = (F.pad(x, (0, 0, 0, more)) for x in (k, v))
    k, v = k.contiguous(), v.contiguous()
    size = max(LEAST_ROWS, CACHED_ENTRIES[q.device.type] // max(1, q.shape[1] * k.shape[2]))
    outs = []
    for first in range(0, max(1, q.shape[2]), size):
        rows = slice(first, first + size)
        some = bias if bias is None or bias.shape[2] == 1 else bias[:, :, rows]
        outs.append(_block(q[:, :, rows].contiguous(), k, v, some))
    return outs[0] if len(outs) == 1 else torch.cat(outs, 2)


def _block(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
    """Outputs of some queries, a few examples at a time."""
    pattern = q.new_empty(1, 1, 1, 1).expand(*q.shape[:3], k.shape[2])
    spare = q.new_empty(_examples(pattern), *pattern.shape[1:])
    wide = _wide(spare)
    out = q.new_empty(*q.shape[:3], v.shape[3])
    for s in pieces(pattern):
        a, rows = (x[: len(pattern[s])] for x in (spare, wide))
        _bmm(q[s], k[s].mT, a)
        _softmax(a, None if bias is None else _of(bias, s), rows)
        _bmm(a, v[s], out[s])
    return out


IMPLEMENTATIONS.register("explicit", Implementation(explicit, forms=frozenset(Form) - {Form.GENERAL}))
