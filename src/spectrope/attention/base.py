"""The function `attention`, its registry of implementations, and the reference implementation.

Each implementation declares what it can compute, and raises an error that names it for anything else.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from spectrope.core import ConfigError, Noise, Registry, UnsupportedError, maybe_drop
from spectrope.encodings import Context, Encoding, Form, Tag

Compute = Callable[[Context, Tensor, Encoding, bool, Noise | None], Tensor]
Restriction = Callable[[Encoding, torch.device, torch.dtype], str | None]


def no_limit(encoding: Encoding, device: torch.device, dtype: torch.dtype) -> str | None:
    """No restriction."""
    return None


@dataclass(frozen=True)
class Implementation:
    """A way to compute attention, and its restrictions.

    Args:
        compute: (ctx, v, encoding, causal, noise) -> (b, h, i, e).
        forms: Supported forms of encodings.
        requires: Laws that the encoding must declare.
        dropout: Whether it supports dropout of the pattern.
        limit: Any other restriction, as text that follows the implementation's name, or None.
        exact: Whether it computes softmax attention up to rounding, rather than within a certified tolerance.
    """

    compute: Compute
    forms: frozenset[Form]
    requires: frozenset[Tag] = frozenset()
    dropout: bool = True
    limit: Restriction = no_limit
    exact: bool = True

    def objection(
        self,
        encoding: Encoding,
        device: torch.device,
        noise: Noise | None,
        dtype: torch.dtype = torch.float32,
    ) -> str | None:
        """Why this implementation cannot be used, or None if it can."""
        if encoding.form not in self.forms:
            return f"cannot compute form {encoding.form.name}"
        if missing := self.requires - encoding.tags:
            return f"needs {', '.join(sorted(tag.name for tag in missing))}"
        if noise is not None and not self.dropout:
            return "has no dropout"
        return self.limit(encoding, device, dtype)


IMPLEMENTATIONS: Registry[Implementation] = Registry("attention implementation", "spectrope.attention")


def attention(
    ctx: Context,
    v: Float[Tensor, "b h j e"],
    encoding: Encoding,
    *,
    causal: bool,
    impl: str = "reference",
    noise: Noise | None = None,
) -> Float[Tensor, "b h i e"]:
    r"""Attention under a positional encoding: :math:`\mathrm{softmax}(L)\,V` with logits of the encoding.

    A query that sees no key has no softmax: some implementations return NaN for it, others 0.

    Args:
        ctx: Queries, keys, positions and mask of the layer.
        v: Values, with shape (b, h, j, e).
        encoding: Positional encoding, which determines how positions enter the logits.
        causal: Whether query i sees key j only if j <= i + n_k - n_q, by index: the queries are the last
            tokens among the keys.
        impl: A name in `IMPLEMENTATIONS`, or "fastest" for the fastest exact one.
        noise: Dropout masks of the pattern (default: no dropout).

    Raises:
        ConfigError: If the values do not fit the keys, or the keys the queries, or the mask is not Boolean or
            fits neither.
        UnknownNameError: If no implementation has that name.
        UnsupportedError: If the implementation cannot compute this encoding here. Another one is never
            substituted silently.
    """
    if v.ndim != 4 or v.shape[:3] != ctx.k.shape[:3]:
        raise ConfigError(f"values must be (b, h, j, e) for keys {tuple(ctx.k.shape)}; got {tuple(v.shape)}.")
    for axis, what, way in (0, "batch", "expand"), (1, "number of heads", "repeat"):
        if ctx.k.shape[axis] != ctx.q.shape[axis]:
            raise ConfigError(
                f"keys must have the {what} of the queries, {ctx.q.shape[axis]}; got {ctx.k.shape[axis]}. "
                f"Use torch's {way} on keys and values."
            )
    if ctx.mask is not None and ctx.mask.dtype is not torch.bool:
        raise ConfigError(f"mask must be Boolean, True where attention is allowed; got {ctx.mask.dtype}.")
    if ctx.mask is not None and not _fits(ctx.mask, (*ctx.q.shape[:3], ctx.k.shape[2])):
        raise ConfigError(
            f"mask must broadcast to (b, h, i, j), {(*ctx.q.shape[:3], ctx.k.shape[2])}; got "
            f"{tuple(ctx.mask.shape)}."
        )
    if ctx.mask is not None and ctx.mask.shape[-1:] != ctx.k.shape[2:3]:  # Some kernels cut it into keys.
        full = torch.broadcast_shapes(ctx.mask.shape, ctx.k.shape[2:3])
        ctx = replace(ctx, mask=ctx.mask.expand(full))
    if impl == "fastest":
        impl = fastest(encoding, v.device, noise, v.dtype)
    chosen = IMPLEMENTATIONS[impl]
    here = (encoding, v.device, noise, v.dtype)
    if objection := chosen.objection(*here):
        able = [name for name in IMPLEMENTATIONS if IMPLEMENTATIONS[name].objection(*here) is None]
        raise UnsupportedError(
            f"attention impl {impl!r} {objection}; "
            f"available here for {type(encoding).__name__}: {', '.join(able)}."
        )
    return chosen.compute(ctx.on_axes(encoding.axes), v, encoding, causal, noise)


def _fits(mask: Tensor, shape: tuple[int, ...]) -> bool:
    """Whether a mask broadcasts to a shape."""
    pairs = zip(reversed(mask.shape), reversed(shape), strict=False)
    return mask.ndim <= len(shape) and all(size in (1, wanted) for size, wanted in pairs)


def reference(ctx: Context, v: Tensor, encoding: Encoding, causal: bool, noise: Noise | None) -> Tensor:
    """Reference implementation under plain autograd, against which all others are tested."""
    logits = encoding.logits(ctx)
    mask = additive_mask(ctx, causal)
    pattern = (logits if mask is None else logits + mask.to(logits.dtype)).softmax(-1)
    return encoding.read(maybe_drop(pattern, noise).to(v.dtype), v, ctx)


def by_parts(ctx: Context, v: Tensor, encoding: Encoding, causal: bool, noise: Noise | None) -> Tensor:
    """Compute each group of heads of a mixture with the fastest implementation for it."""
    outputs = []
    for heads, part in encoding.parts():
        of_part = ctx.of_heads(heads)
        outputs.append(attention(of_part, v[:, heads], part, causal=causal, impl="fastest", noise=noise))
    return torch.cat(outputs, 1)


def fastest(
    encoding: Encoding,
    device: torch.device,
    noise: Noise | None = None,
    dtype: torch.dtype = torch.float32,
) -> str:
    """The exact implementation that is fastest for an encoding on a kind of device.

    On a CPU these are explicit products, at the lengths and head dimensions of this package's models (see
    `benchmarks/attention.py`). On CUDA, where nothing has been measured yet, it is torch's fused kernel.
    Mixtures that neither supports as a whole are split into their groups of heads; everything else uses the
    reference. Compiled attention, which a machine may lack, is never among them, so that runs of one
    configuration use the same code everywhere.
    """
    order = ("fused", "explicit") if device.type == "cuda" else ("explicit",)
    able = (n for n in order if IMPLEMENTATIONS[n].objection(encoding, device, noise, dtype) is None)
    return next(able, "parts" if len(list(encoding.parts())) > 1 else "reference")


def additive_mask(ctx: Context, causal: bool) -> Tensor | None:
    """Zeros where attention is allowed and -inf elsewhere, as small as it broadcasts, or None."""
    allowed = ctx.mask
    if causal:
        n_q, n_k = ctx.q.shape[-2], ctx.k.shape[-2]
        past = torch.ones(n_q, n_k, dtype=torch.bool, device=ctx.q.device).tril(n_k - n_q)
        allowed = past if allowed is None else allowed & past
    if allowed is None:
        return None
    return torch.zeros(allowed.shape, dtype=ctx.q.dtype, device=ctx.q.device).masked_fill(
        ~allowed, -torch.inf
    )


def additive_bias(ctx: Context, encoding: Encoding, causal: bool) -> tuple[Tensor | None, bool]:
    """Combine an encoding's bias and the mask for torch's fused kernel.

    Returns:
        Their sum, broadcastable to (b, h, i, j), or None; and whether the kernel must mask later keys itself.
    """
    bias, square = encoding.bias(ctx), ctx.q.shape[-2] == ctx.k.shape[-2]
    if bias is None and ctx.mask is None and (square or not causal):
        return None, causal
    mask = additive_mask(ctx, causal)
    if bias is None or mask is None:
        return (mask if bias is None else bias), False
    return bias + mask.to(bias.dtype), False


IMPLEMENTATIONS.register("reference", Implementation(reference, forms=frozenset(Form)))
IMPLEMENTATIONS.register("parts", Implementation(by_parts, forms=frozenset(Form)))
