"""Which keys a query may see, in words."""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Int
from torch import Tensor

Shape = Literal[
    "causal", "bidirectional", "causal window", "bidirectional window", "causal chunk", "unlimited", "other"
]


@dataclass(frozen=True)
class Mask:
    """Shape of a mask.

    Args:
        shape: What it is; "unlimited" stands for causal or bidirectional where a declaration says neither;
            "other" is what no rule fits.
        size: Keys that a causal window holds, the query's own among them; keys on either side for a window
            that looks both ways; positions per chunk; None where there is no limit.
    """

    shape: Shape
    size: int | None = None

    def __str__(self) -> str:
        return self.shape if self.size is None else f"{self.shape} {self.size}"


def describe_mask(allowed: Bool[Tensor, "b h i j"]) -> Mask:
    """The rule behind a mask; (i, j) are query and key of the same sequence.

    Args:
        allowed: Which keys each query may see; rows of the batch and heads must agree, or it is "other".
    """
    first = allowed[0, 0]
    if not bool((allowed == first).all()):
        return Mask("other")
    i = torch.arange(len(first), device=first.device)
    lag = i[:, None] - i[None, :]
    return next(
        (mask for mask in _candidates(first, lag) if bool((_drawn(mask, lag) == first).all())), Mask("other")
    )


def _candidates(allowed: Bool[Tensor, "n n"], lag: Int[Tensor, "n n"]) -> list[Mask]:
    reach = int(lag[allowed].max()) if bool(allowed.any()) else 0
    hidden = (~allowed[:, 0]).nonzero()
    masks = [
        Mask("causal"),
        Mask("bidirectional"),
        Mask("causal window", reach + 1),
        Mask("bidirectional window", reach),
    ]
    return [*masks, Mask("causal chunk", int(hidden[0]))] if len(hidden) else masks


def _drawn(mask: Mask, lag: Int[Tensor, "n n"]) -> Bool[Tensor, "n n"]:
    size = mask.size or 1
    chunk = torch.arange(len(lag), device=lag.device) // size
    return {
        "causal": lag >= 0,
        "bidirectional": torch.ones_like(lag, dtype=torch.bool),
        "causal window": (lag >= 0) & (lag < size),
        "bidirectional window": lag.abs() <= size,
        "causal chunk": (lag >= 0) & (chunk[:, None] == chunk[None, :]),
    }[mask.shape]
