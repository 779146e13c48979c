"""Attention by the compiled operators of the optional distribution `spectrope-kernels`, for CPUs."""

import importlib
from functools import cache
from typing import Any

import torch
from torch import Tensor

from spectrope.attention.base import IMPLEMENTATIONS, Implementation, additive_mask
from spectrope.attention.explicit import pieces
from spectrope.core import Noise
from spectrope.encodings import Context, Encoding, Form

INSTALL = "pip install --no-build-isolation ./kernels"
VECTOR = 16  # Numbers in float32 that the widest registers hold; rows of the pattern are padded to them.
PRECISIONS = (torch.float32, torch.bfloat16)


@cache
def missing() -> str | None:
    """Why the operators are not available in this environment, or None where they are."""
    try:
        importlib.import_module("spectrope_kernels")
    except ModuleNotFoundError:
        return f"needs the package spectrope-kernels ({INSTALL} in SpectroPE's sources)"
    except (ImportError, OSError) as error:
        return f"cannot load the package spectrope-kernels: {str(error).splitlines()[0]}"
    return None


class _Compiled(torch.autograd.Function):
    """Softmax attention that keeps the pattern, with a negative sign where dropout acts, as in `explicit`."""

    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, options: dict[str, Any]
    ) -> Tensor:
        pattern = q.new_empty(*q.shape[:3], k.shape[2] + -k.shape[2] % VECTOR)
        out = _forward(q, k, v, bias, pattern, **options)
        ctx.save_for_backward(q, k, v, bias, pattern)
        ctx.options = options
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, bias, pattern = ctx.saved_tensors
        grad, noise = _with_rows(grads[0]), ctx.options["noise"]
        dq, dk, dv = (torch.empty_like(x) for x in (q, k, v))
        options = (ctx.options["causal"], ctx.options["scale"], 1.0 if noise is None else noise.scale)
        if not ctx.needs_input_grad[3]:
            _operators().attend_backward(q, k, v, pattern, grad, *options, dq, dk, dv, None)
            return dq, dk, dv, None, None
        db = torch.zeros_like(bias, dtype=torch.float32)
        for s in pieces(pattern):
            part = torch.empty(*pattern[s].shape[:3], k.shape[2])
            states = (x[s] for x in (q, k, v, pattern, grad))
            _operators().attend_backward(*states, *options, dq[s], dk[s], dv[s], part)
            of_piece = db if len(db) == 1 else db[s]
            of_piece.add_(part.sum_to_size(of_piece.shape))
        return dq, dk, dv, db.to(bias.dtype), None


def _operators() -> Any:
    return torch.ops.spectrope_kernels


def _forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | None,
    pattern: Tensor | None,
    *,
    causal: bool,
    scale: float,
    noise: Noise | None,
) -> Tensor:
    """Outputs, laid out in memory as the next layer reads them: (b, i, h, e)."""
    n, h, n_q, _ = q.shape
    out = q.new_empty(n, n_q, h, v.shape[3]).transpose(1, 2)
    if bias is not None:
        bias = _with_rows(bias.detach().float().expand(-1, -1, -1, k.shape[2]))
        bias = bias.expand(n, h, n_q, -1)
    if noise is None:
        _operators().attend(q, k, v, bias, None, causal, 0, scale, 1.0, pattern, out)
        return out
    whole = q.new_empty(1, 1, 1, 1).expand(n, h, n_q, k.shape[2])
    for s in pieces(whole):  # As in `explicit`, so that dropout draws the same bits.
        some, kept = (None if x is None else x[s] for x in (bias, pattern))
        drawn = (noise.words(whole[s].shape), causal, noise.last_dropped, scale, noise.scale)
        _operators().attend(q[s], k[s], v[s], some, *drawn, kept, out[s])
    return out


def compiled(ctx: Context, v: Tensor, encoding: Encoding, causal: bool, noise: Noise | None) -> Tensor:
    """Rotated queries and keys, one additive bias that carries the mask too, and the compiled operators.

    Sums and softmax are in float32. Outputs differ from those of `explicit` by rounding alone, and dropout
    draws the same masks.
    """
    q = _with_rows(encoding.rotate(encoding.scaled(ctx.q), ctx.q_pos, "query"))
    k = _with_rows(encoding.rotate(ctx.k, ctx.k_pos, "key"))
    v = _with_rows(v)
    inside = causal and q.shape[2] <= k.shape[2]  # Else some queries see no key at all.
    bias, mask = encoding.bias(ctx), additive_mask(ctx, causal and not inside)
    if bias is not None and mask is not None:
        mask = bias + mask.to(bias.dtype)
    bias = bias if mask is None else mask
    if bias is not None:
        bias = bias[(None,) * (4 - bias.ndim)]
    options = {"causal": inside, "scale": ctx.scale, "noise": noise}
    differentiable = any(x is not None and x.requires_grad for x in (q, k, v, bias))
    if not (differentiable and torch.is_grad_enabled()):
        return _forward(q, k, v, bias, None, **options)
    out = _Compiled.apply(q, k, v, bias, options)
    assert isinstance(out, Tensor)
    return out


def _with_rows(x: Tensor) -> Tensor:
    """x with rows that are contiguous, which is all that the operators need."""
    return x if x.stride(-1) == 1 else x.contiguous()


def _limit(encoding: Encoding, device: torch.device, dtype: torch.dtype) -> str | None:
    if device.type != "cpu":
        return f"has no kernel for {device.type}"
    if dtype not in PRECISIONS:
        return f"has no kernel for {str(dtype).removeprefix('torch.')}"
    return missing()


IMPLEMENTATIONS.register(
    "compiled", Implementation(compiled, forms=frozenset(Form) - {Form.GENERAL}, limit=_limit)
)
