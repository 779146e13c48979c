"""Attention by batched products with a hand-written backward pass: the workhorse on CPUs."""

from typing import Any

import torch
from torch import Tensor

from spectrope.attention.base import IMPLEMENTATIONS, Implementation, additive_mask
from spectrope.core.noise import Noise
from spectrope.encodings.base import Context, Encoding, Form


class _Explicit(torch.autograd.Function):
    r"""Softmax attention that keeps one (b h, i, j) tensor between its passes.

    With :math:`A` the pattern, :math:`M` the dropout mask over :math:`1-p` and :math:`O = (A \circ M) V`, the
    gradient of the logits is :math:`dL = (A\circ M)\circ(dO\,V^\top) - A \circ \mathrm{rowsum}(dO \circ O)`.
    The mask is stored as the sign of the pattern, whose entries are positive.
    """

    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, noise: Noise | None
    ) -> Tensor:
        b, h, i, _ = q.shape
        q, k, v = (x.flatten(0, 1) for x in (q, k, v))
        pattern = torch.bmm(q, k.transpose(1, 2))
        if bias is not None:
            pattern.view(b, h, i, -1).add_(bias)
        torch.softmax(pattern, -1, out=pattern)
        scale = 1.0
        if noise is None:
            out = torch.bmm(pattern, v)
        else:
            scale = noise.scale
            pattern.copysign_(noise.keep(pattern.shape, pattern.dtype).sub_(0.5))
            out = torch.bmm(pattern.relu(), v).mul_(scale)
        ctx.save_for_backward(q, k, v, pattern, out)
        ctx.scale, ctx.heads = scale, (b, h)
        ctx.bias_shape = bias.shape if bias is not None and bias.requires_grad else None
        return out.unflatten(0, (b, h))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, pattern, out = ctx.saved_tensors
        grad = grads[0].flatten(0, 1)
        delta = (grad * out).sum(-1, keepdim=True)
        if ctx.scale == 1.0:
            kept = pattern
            d_logits = torch.bmm(grad, v.transpose(1, 2)).sub_(delta).mul_(pattern)
        else:
            grad = grad * ctx.scale
            kept = pattern.relu()
            d_logits = torch.bmm(grad, v.transpose(1, 2)).mul_(kept)
            d_logits.addcmul_(pattern.abs(), delta, value=-1)
        d_bias = None
        if ctx.bias_shape is not None:
            d_bias = d_logits.unflatten(0, ctx.heads).sum_to_size(ctx.bias_shape)
        inputs = (
            torch.bmm(d_logits, k),
            torch.bmm(d_logits.transpose(1, 2), q),
            torch.bmm(kept.transpose(1, 2), grad),
        )
        return *(x.unflatten(0, ctx.heads) for x in inputs), d_bias, None


def explicit(ctx: Context, v: Tensor, encoding: Encoding, causal: bool, noise: Noise | None) -> Tensor:
    """Rotated queries and keys, one additive bias that carries the mask too, and `_Explicit`."""
    q = encoding.rotate(ctx.q * ctx.scale, ctx.q_pos, "query")
    k = encoding.rotate(ctx.k, ctx.k_pos, "key")
    bias, mask = encoding.bias(ctx), additive_mask(ctx, causal)
    if bias is not None and mask is not None:
        bias = bias + mask.to(bias.dtype)
    bias = mask if bias is None else bias
    return _Explicit.apply(q, k, v, bias if bias is None else bias.to(q.dtype), noise)  # pyright: ignore[reportReturnType]


IMPLEMENTATIONS["explicit"] = Implementation(explicit, forms=frozenset(Form) - {Form.GENERAL})
