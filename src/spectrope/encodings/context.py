"""Inputs of an encoding in one layer, and its form, laws and scope."""

from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Literal

from jaxtyping import Bool
from torch import Tensor

from spectrope.encodings.positions.axes import order

Side = Literal["query", "key"]


class Form(Enum):
    """How an encoding enters the logits; a kernel declares which forms it can compute."""

    DOT = auto()  # scale * <rotate(scaled(q), i), rotate(k, j)>
    DOT_PLUS_LAG = auto()  # ... plus a bias of the head and of the lag i - j alone
    DOT_PLUS_BIAS = auto()  # ... plus any bias
    GENERAL = auto()  # `logits` alone says


class Tag(Enum):
    """Laws of an encoding. Contract tests verify that declared laws hold and undeclared ones fail."""

    SHIFT_INVARIANT = auto()  # adding a constant to every position changes no logit
    CONTENT_FREE = auto()  # what is added, rotated or biased depends on positions, never on tokens
    ISOMETRIC = auto()  # norms are kept and nothing is added, so |logit| <= |q| |k| * scale
    LEARNED = auto()  # has parameters to train


class Scope(Enum):
    """Whether all layers share one instance (T5's table) or each has its own."""

    MODEL = auto()
    LAYER = auto()


@dataclass(frozen=True)
class Context:
    """All inputs that an encoding may use in one attention layer.

    Args:
        q: Queries before rotation, with shape (b, h, i, d).
        k: Keys before rotation, with shape (b, h, j, d); their width may differ from the values'.
        q_pos: Positions of the queries, with shape (b or 1, i); with axes (b or 1, i, 1 + axes), the order
            of the tokens first.
        k_pos: Positions of the keys, likewise.
        x_q: Hidden states of the query side, with shape (b, i, c), if available.
        x_k: Hidden states of the key side, with shape (b, j, c), where the caller has them.
        mask: True where attention is allowed, broadcastable to (b, h, i, j); None allows all.

    Example:
        >>> import spectrope as sp
        >>> import torch
        >>> q, k = torch.randn(2, 1, 8, 16, 64)
        >>> positions = torch.arange(16)[None]
        >>> sp.Context(q, k, positions, positions).lag[0, 3, :4].tolist()
        [3, 2, 1, 0]
    """

    q: Tensor
    k: Tensor
    q_pos: Tensor
    k_pos: Tensor
    x_q: Tensor | None = None
    x_k: Tensor | None = None
    mask: Bool[Tensor, "..."] | None = None

    @property
    def lag(self) -> Tensor:
        """`q_pos - k_pos`, positive in the past, with shape (b or 1, i, j)."""
        return order(self.q_pos)[..., :, None] - order(self.k_pos)[..., None, :]

    @property
    def scale(self) -> float:
        """The factor 1/sqrt(d) of dot products."""
        return self.q.shape[-1] ** -0.5

    def on_axes(self, axes: int) -> "Context":
        """Context for an encoding that reads this many position coordinates; for one, only the order of
        tokens."""
        if axes > 1 or self.q_pos.ndim < 3:
            return self
        return replace(self, q_pos=order(self.q_pos), k_pos=order(self.k_pos))

    def of_heads(self, heads: slice) -> "Context":
        """Context restricted to some of the heads."""
        mask = self.mask
        if mask is not None and mask.ndim > 2 and mask.shape[-3] > 1:
            mask = mask[..., heads, :, :]
        return replace(self, q=self.q[:, heads], k=self.k[:, heads], mask=mask)
