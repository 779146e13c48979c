r"""The entries of a relative rotation :math:`W_{i-j}`, which `relative_fft` multiplies monomials by."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from spectrope.core import UnsupportedError
from spectrope.encodings import Context, Encoding
from spectrope.fast.lag_weights import require_consecutive
from spectrope.fast.rotation import key_mask, visible


@dataclass(frozen=True)
class Unrotated:
    """Queries and keys before they are rotated.

    Args:
        q: Queries, scaled, in float64.
        k: Keys, 0 where they may not be seen, in float64.
        keys: True at keys that may be seen; None allows all.
    """

    q: Float[Tensor, "b h i d"]
    k: Float[Tensor, "b h j d"]
    keys: Bool[Tensor, "b j"] | None

    def norm(self, head: int) -> float:
        """The largest product of the norms of a query and a key of one head."""
        q, k = (float(x[:, head].detach().norm(dim=-1).max()) for x in (self.q, self.k))
        return q * k * (1 + 1e-9)


def unrotated(ctx: Context, encoding: Encoding) -> Unrotated:
    """The scaled queries and the keys of a context.

    Raises:
        UnsupportedError: If the mask hides pairs rather than keys.
    """
    keys = key_mask(ctx)
    return Unrotated(encoding.scaled(ctx.q.double()) * ctx.scale, visible(ctx.k.double(), keys), keys)


@dataclass(frozen=True)
class RelativeEntries:
    """The entries of a relative rotation that are not 0 at every lag.

    Args:
        query_axes: The coordinate of the query that each multiplies.
        key_axes: The coordinate of the key.
        weights: Entries of each head at lags 1 - i, ..., j - 1, 0 where they are not seen, (h, r, lags).
    """

    query_axes: Int[Tensor, " r"]
    key_axes: Int[Tensor, " r"]
    weights: Float[Tensor, "h r lags"]

    def gain(self, head: int, dim: int) -> float:
        r"""A bound of :math:`\sum_r |W^{(r)} q_{c_r} k_{e_r}| / |q||k|` in one head.

        With M the largest modulus of each entry, this is :math:`\|M\|_2 \le \sqrt{\|M\|_1 \|M\|_\infty}`. The
        latter also bounds sums of products of monomials by Cauchy-Schwarz.
        """
        largest = self.weights.new_zeros(dim, dim)
        largest[self.query_axes, self.key_axes] = self.weights[head].detach().abs().amax(1)
        return float(largest.sum(0).max() * largest.sum(1).max()) ** 0.5


def relative_entries(ctx: Context, encoding: Encoding, causal: bool) -> RelativeEntries:
    """The entries of an encoding's relative rotation, from what it makes of unit vectors.

    Raises:
        UnsupportedError: If positions are not consecutive and shared, or the encoding mixes heads.
    """
    require_consecutive(ctx)
    heads, n_q, dim = ctx.q.shape[1:]
    _require_separate_heads(encoding, heads, dim, ctx.q.device)
    lags = torch.arange(1 - n_q, ctx.k.shape[-2], device=ctx.q.device)[None]
    seen = ((lags[0] >= 0) | (not causal)).double()
    units = torch.eye(dim, dtype=torch.float64, device=ctx.q.device).expand(1, heads, dim, dim)
    keys = encoding.rotate(units, lags.new_zeros(1, dim), "key")[0]
    rows, query_axes, key_axes = [], [], []
    for axis in range(dim):
        turned = encoding.rotate(units[:, :, [axis]].expand(1, heads, lags.shape[1], dim), lags, "query")[0]
        entries = (turned @ keys.mT).mT * seen
        kept = (entries.detach() != 0).any(2).any(0).nonzero().squeeze(1)
        rows.append(entries[:, kept])
        key_axes.append(kept)
        query_axes.append(torch.full_like(kept, axis))
    return RelativeEntries(torch.cat(query_axes), torch.cat(key_axes), torch.cat(rows, 1))


def _require_separate_heads(encoding: Encoding, heads: int, dim: int, device: torch.device) -> None:
    """Refuse an encoding under which a head's queries or keys depend on those of another head."""
    alone = torch.eye(heads, dtype=torch.float64, device=device)[:, :, None, None].expand(-1, -1, 1, dim)
    pos = torch.zeros(1, 1, dtype=torch.long, device=device)
    others = ~torch.eye(heads, dtype=torch.bool, device=device)
    for side in ("query", "key"):
        if encoding.rotate(alone, pos, side)[others].any():
            raise UnsupportedError(
                f"attention impl 'relative_fft' needs heads that are rotated by themselves; "
                f"{type(encoding).__name__} computes some heads from the vectors of others."
            )
