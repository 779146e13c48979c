"""Attention as it is written down: any encoding, plain autograd."""

from torch import Tensor

from spectrope.attention.base import IMPLEMENTATIONS, Implementation, additive_mask
from spectrope.core.noise import Noise, maybe_drop
from spectrope.encodings.base import Context, Encoding, Form


def reference(ctx: Context, v: Tensor, encoding: Encoding, causal: bool, noise: Noise | None) -> Tensor:
    """Logits, mask, softmax, dropout, values; every other implementation is tested against this one."""
    logits = encoding.logits(ctx)
    mask = additive_mask(ctx, causal)
    pattern = (logits if mask is None else logits + mask.to(logits.dtype)).softmax(-1)
    return encoding.read(maybe_drop(pattern, noise).to(v.dtype), v, ctx)


IMPLEMENTATIONS.register("reference", Implementation(reference, forms=frozenset(Form)))
