"""Queries and keys as they enter products: rotated, scaled, in the leading coordinates of some heads."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from spectrope.core import UnsupportedError
from spectrope.encodings import Context, Encoding, Form
from spectrope.encodings.context import Side
from spectrope.fast.certificate import LogitBounds

FORMS = frozenset({Form.DOT, Form.DOT_PLUS_LAG})


@dataclass(frozen=True)
class Rotated:
    """Scaled queries and keys as they enter products, and the keys that may be seen."""

    q: Float[Tensor, "b h i d"]
    k: Float[Tensor, "b h j d"]
    keys: Bool[Tensor, "b j"] | None


def rotated(ctx: Context, encoding: Encoding) -> Rotated:
    """Rotated queries and keys, and the mask of keys.

    Raises:
        UnsupportedError: If the encoding is of another form than DOT and DOT_PLUS_LAG, or the mask hides
            pairs rather than keys.
    """
    if encoding.form not in FORMS:
        raise UnsupportedError(
            f"fast attention computes forms {' and '.join(sorted(f.name for f in FORMS))}; "
            f"{type(encoding).__name__} is of form {encoding.form.name}."
        )
    q = encoding.rotate(encoding.scaled(ctx.q) * ctx.scale, ctx.q_pos, "query")
    return Rotated(q, encoding.rotate(ctx.k, ctx.k_pos, "key"), key_mask(ctx))


def stretch(encoding: Encoding, ctx: Context) -> float:
    """The largest factor by which rotations at the first and last positions lengthen |q||k|."""
    heads, dim = ctx.q.shape[1], ctx.q.shape[-1]
    units = torch.eye(dim, dtype=torch.float64, device=ctx.q.device).expand(1, heads, dim, dim)
    factor = 1.0
    sides: tuple[tuple[Side, Tensor], ...] = (("query", ctx.q_pos), ("key", ctx.k_pos))
    for side, pos in sides:
        ends = (pos.new_full((1, dim), int(end)) for end in (pos.min(), pos.max()))
        turned = torch.cat([encoding.rotate(units, end, side) for end in ends])
        factor *= float(torch.linalg.matrix_norm(turned, 2).max())
    return factor


def key_mask(ctx: Context) -> Bool[Tensor, "b j"] | None:
    """The context's mask as one of keys alone.

    Raises:
        UnsupportedError: If it depends on heads or queries.
    """
    if ctx.mask is None:
        return None
    mask = ctx.mask[(None,) * (4 - ctx.mask.ndim)]
    if mask.shape[1:3] != (1, 1):
        raise UnsupportedError(
            "fast attention takes a mask of keys alone, of shape (b, 1, 1, j); "
            f"this one has shape {tuple(mask.shape)}."
        )
    return mask[:, 0, 0].expand(len(ctx.q), ctx.k.shape[-2])


def visible(x: Tensor, keys: Bool[Tensor, "b j"] | None) -> Tensor:
    """The values at keys that may be seen, and 0 at others."""
    return x if keys is None else torch.where(keys[:, None, :, None], x, 0.0)


def projected(turned: Rotated, bounds: LogitBounds, heads: list[int], rank: int) -> tuple[Tensor, Tensor]:
    """Queries and centred keys of some heads, in the `rank` leading coordinates of each head's basis.

    Products with the basis are formed in float64, head by head: in float32 their errors would grow with the
    root of the rank, which certificates do not allow for.
    """
    dtype = torch.float64 if turned.q.dtype == torch.float64 else torch.float32
    q, k, centre = (of_heads(x, heads).to(dtype) for x in (turned.q, turned.k, bounds.centre))
    k = k - centre
    if rank == q.shape[-1]:
        return q, k
    bases = [bounds.basis(head, rank).double() for head in heads]

    def leading(x: Tensor) -> Tensor:
        return torch.stack([(x[:, i].double() @ basis).to(dtype) for i, basis in enumerate(bases)], 1)

    return leading(q), leading(k)


def of_heads(x: Float[Tensor, "b h n d"], heads: Sequence[int]) -> Float[Tensor, "b some n d"]:
    """Some heads in ascending order; all of them are not copied."""
    return x if len(heads) == x.shape[1] else x[:, list(heads)]
