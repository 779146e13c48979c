"""Whether two layers compute the same queries and keys, and in which order of coordinates."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from spectrope.checkpoints.adapters import Call
from spectrope.checkpoints.audit.encoding import Turning

EXACT, ALIKE = 0.999, 0.8  # Mean correlation of matched coordinates: of equal, and of tuned weights.
AGREE = 1e-3  # Share of the largest logit by which two may differ.


@dataclass(frozen=True)
class RowOrder:
    """Correspondence of the coordinates of queries or keys in two models.

    Args:
        heads: Head of the second model for each of the first; empty where coordinates of a head are spread.
        inner: Coordinate within the head for each of the first model's; empty where heads disagree.
        likeness: Mean correlation of matched coordinates.
    """

    heads: tuple[int, ...]
    inner: tuple[int, ...]
    likeness: float

    @property
    def heads_in_order(self) -> bool:
        """Whether heads follow each other as in the first model."""
        return self.heads == tuple(range(len(self.heads))) and bool(self.heads)

    @property
    def rows_in_order(self) -> bool:
        """Whether coordinates do, within heads."""
        return self.inner == tuple(range(len(self.inner))) and bool(self.inner)

    def name(self, turning: Turning | None) -> str:
        """The order of rows in words.

        Args:
            turning: The rotation of the first model, which says which coordinates are pairs.
        """
        if self.rows_in_order:
            return "the same order"
        if turning is not None and self.inner:
            for name, order in conversions(turning.width).items():
                rows = list(range(len(self.inner)))
                rows[turning.start : turning.start + turning.width] = (order + turning.start).tolist()
                if self.inner == tuple(rows):
                    return name
        return "another order"


TO_HALVES, TO_ADJACENT = "permuted from adjacent pairs to halves", "permuted from halves to adjacent pairs"


def conversions(width: int) -> dict[str, Int[Tensor, " width"]]:
    """For each coordinate before a conversion between layouts of pairs, its place afterwards."""
    half = width // 2
    return {
        TO_HALVES: torch.arange(width).view(2, half).T.flatten(),
        TO_ADJACENT: torch.arange(width).view(half, 2).T.flatten(),
    }


def row_order(
    first: Float[Tensor, "b h d"], second: Float[Tensor, "b h d"], likeness: float
) -> RowOrder | None:
    """The order in which the second's coordinates are those of the first; None where they are others.

    Args:
        first: Queries or keys of one layer before any rotation, for several inputs.
        second: Those of the other model for the same inputs.
        likeness: Least mean correlation of matched coordinates.
    """
    a, b = (x.flatten(1).T.double() for x in (first, second))
    if a.shape != b.shape:
        return None
    still = ~(a.any(1) | b.any(1))
    a, b = (x / x.norm(dim=1, keepdim=True).clamp(min=1e-300) for x in (a, b))
    alike = a @ b.T
    own = alike.diagonal().masked_fill(still, 1.0)
    best, place = alike.max(1)
    stays = own >= best - 1e-9  # Where other rows are equal to its own, a row is in its place.
    best, place = torch.where(stays, own, best), torch.where(stays, torch.arange(len(place)), place)
    if best.mean() < likeness or len(place.unique()) < len(place):
        return None
    h, d = first.shape[1:]
    heads, inner = (place // d).view(h, d), (place % d).view(h, d)
    whole, shared = bool((heads == heads[:, :1]).all()), bool((inner == inner[:1]).all())
    return RowOrder(
        tuple(heads[:, 0].tolist()) if whole else (),
        tuple(inner[0].tolist()) if whole and shared else (),
        best.mean().item(),
    )


def at_start(call: Call) -> tuple[Float[Tensor, "b h d"], Float[Tensor, "b g d"]]:
    """Queries and keys at the first position, which no rotation from position 0 has turned."""
    return call.q[:, :, 0], call.k[:, :, 0]


def same_logits(first: Call, second: Call, heads: tuple[int, ...], noise: float) -> bool:
    """Whether two layers give the same logits for the same input, at all lags of a short sequence.

    Args:
        first: Of one model.
        second: Of the other.
        heads: Head of the second for each of the first.
        noise: Relative rounding error of the arithmetic.
    """
    allowed = first.allowed & second.allowed
    both = [call.unmasked().double() for call in (first, second)]
    if both[0].shape != both[1].shape:
        return False
    a, b = both[0], both[1][:, list(heads)]
    gap = (a - b).masked_fill(~allowed, 0.0).abs().max()
    sizes = first.q.double().norm(dim=-1).max() * first.k.double().norm(dim=-1).max() * (first.scale or 1.0)
    return bool(gap <= AGREE * a.masked_fill(~allowed, 0.0).abs().max() + 4 * noise * sizes)
