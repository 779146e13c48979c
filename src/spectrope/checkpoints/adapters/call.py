"""What one call of an attention kernel receives."""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

if TYPE_CHECKING:
    from spectrope.checkpoints.adapters.sparse import SparseRun

FORBIDDEN = -9e3  # An additive mask at or below it forbids; the oldest models add -10000.

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class Call:
    r"""One call of an attention kernel, with logits :math:`s\,\langle q_i, k_j\rangle + \beta_{ij}`.

    Under a cap c the product is :math:`c \tanh(s\,\langle q_i, k_j\rangle / c)` instead.

    Args:
        module: Dotted name of the module that made the call.
        q: Queries as they enter the product, with shape (b, h, i, d).
        k: Keys likewise, with shape (b, g, j, d), where g divides h.
        bias: What is added to the scaled product, in logit units, or None.
        allowed: Which keys each query may see.
        scale: The factor s; None where it must be found from `logits`.
        logits: All of it with the mask, where the kernel shows no bias of its own.
        softcap: The cap c, or None.
        sinks: Logit per head of a further term in softmax's denominator, which no key adds; None for none.
        v: Values, with shape (b, g, j, e), where the kernel shows them.
        pattern: What multiplies the values, where the kernel shows `logits`.
        attend: The model's own attention function under this call's mask and options, of queries, keys and
            values with these shapes; it returns shape (b, i, h, e). None where it is not seen or does not run
            here.
        sparse: The call itself where it computes a part of all pairs in bands or blocks, which may count keys
            several times (`bias`).
    """

    module: str
    q: Float[Tensor, "b h i d"]
    k: Float[Tensor, "b g j d"]
    bias: Float[Tensor, "#b #h i j"] | None
    allowed: Bool[Tensor, "#b #h i j"]
    scale: float | None
    logits: Float[Tensor, "b h i j"] | None = None
    softcap: float | None = None
    sinks: Float[Tensor, " h"] | None = None
    v: Float[Tensor, "b g j e"] | None = None
    pattern: Float[Tensor, "b h i j"] | None = None
    attend: Attend | None = None
    sparse: "SparseRun | None" = None

    def cpu(self) -> "Call":
        """The same on the CPU."""
        tensors = {field.name: getattr(self, field.name) for field in fields(self)}
        moved = {name: value.cpu() for name, value in tensors.items() if isinstance(value, Tensor)}
        return replace(self, **moved)

    def row(self, row: int) -> "Call":
        """One row of the batch, without the function that attends to all of them."""
        per_row = ("q", "k", "v", "bias", "allowed", "logits", "pattern")
        given = {name: getattr(self, name) for name in per_row}
        some = {name: x[row : row + 1] if x is not None and len(x) > 1 else x for name, x in given.items()}
        return replace(self, **some, attend=None)

    def products(self) -> Float[Tensor, "b h i j"]:
        """Dot products of queries and keys, unscaled."""
        groups = self.q.shape[1] // self.k.shape[1]
        return self.q @ self.k.repeat_interleave(groups, 1).transpose(-1, -2)

    def products_of(self, head: int) -> Float[Tensor, "b i j"]:
        """Those of one query head."""
        group = head * self.k.shape[1] // self.q.shape[1]
        return self.q[:, head] @ self.k[:, group].mT

    def hidden(self, head: int) -> Bool[Tensor, "i j"]:
        """Keys that each query of one head does not see, in the first row of the batch."""
        allowed = self.allowed[0]
        return ~allowed[head if len(allowed) > 1 else 0]

    def capped(self, scores: Tensor) -> Tensor:
        r""":math:`c \tanh(x / c)` of scaled products x, or x where there is no cap."""
        return scores if self.softcap is None else self.softcap * torch.tanh(scores / self.softcap)

    def unmasked(self) -> Float[Tensor, "b h i j"]:
        """Logits without the mask, except where the kernel shows no others."""
        if self.logits is not None:
            return self.logits
        scores = self.capped(self.products() * (self.scale or 1.0))
        return scores if self.bias is None else scores + self.bias


def split_mask(
    mask: Tensor | None, q: Tensor, k: Tensor, causal: bool
) -> tuple[Bool[Tensor, "#b #h i j"], Float[Tensor, "#b #h i j"] | None]:
    """Which pairs a mask allows, and the bias that it carries, if any.

    Args:
        mask: True where allowed, or a number to add, broadcastable to (b, h, i, j); None asks `causal`.
        q: Queries, with shape (b, h, i, d).
        k: Keys, with shape (b, g, j, d).
        causal: Whether no mask means that query i sees key j only if j <= i, by index, as torch's
            `is_causal` does whatever the numbers of queries and keys.
    """
    n, m = q.shape[-2], k.shape[-2]
    if mask is None:
        allowed = torch.ones(1, 1, n, m, dtype=torch.bool, device=q.device)
        return allowed.tril() if causal else allowed, None
    while mask.ndim < 4:
        mask = mask[None]
    mask = mask[..., :m].expand(*mask.shape[:2], n, m)
    if mask.dtype is torch.bool:
        return mask, None
    allowed = mask > FORBIDDEN
    bias = mask.masked_fill(~allowed, 0)
    return allowed, bias if bool(bias.any()) else None


def exact(x: Any) -> Any:
    """A tensor of low precision in float32, anything else as it is."""
    low = isinstance(x, Tensor) and x.dtype in (torch.bfloat16, torch.float16)
    return x.float() if low else x
