"""Random queries, keys and values through a model's own attention function."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from spectrope.checkpoints.adapters import FAILURES, Call
from spectrope.core import torch_stream

LONGEST = 1024  # Positions up to which the function is run, or more keys of fewer queries.
SPREAD = 3.0  # Standard deviation of the logits, at which caps and sinks show.


@dataclass(frozen=True, eq=False)
class Exercise:
    """What an attention function made of random inputs.

    Args:
        q: Queries.
        k: Keys, of which there are more than queries behind a cache.
        pattern: Weights that it gave to the keys.
        errors: Largest departure of each head's output for random values from its pattern times those values.
    """

    q: Float[Tensor, "h n d"]
    k: Float[Tensor, "g m d"]
    pattern: Float[Tensor, "h n m"]
    errors: Float[Tensor, " h"]

    @property
    def groups(self) -> int:
        """Query heads per key-value head."""
        return len(self.q) // len(self.k)

    def products(self, heads: slice = slice(None)) -> Float[Tensor, "h n m"]:
        """Dot products of the queries of some heads with their keys."""
        own = torch.arange(len(self.q))[heads] // self.groups
        return self.q[heads] @ self.k[own].mT


@torch.no_grad()
def exercise(call: Call, seed: int, row: int = 0) -> Exercise | None:
    """Run the attention function of a call on random inputs; None where it is not seen or does not run.

    Values that are the rows of the identity show the pattern.

    Args:
        call: Of one layer, over its whole sequence or over the last tokens of one.
        seed: Of the inputs.
        row: Of the call's batch, whose mask applies.
    """
    (b, h, n, d), (_, g, m, _) = call.q.shape, call.k.shape
    if call.v is None or n > m or n * m > LONGEST**2:
        return None
    size = (SPREAD / ((call.scale or 1.0) * d**0.5)) ** 0.5
    generator = torch_stream(seed, "exercise", call.module)
    q, k = (size * torch.randn(1, *shape, d, generator=generator) for shape in ((h, n), (g, m)))
    v = torch.randn(1, call.v.shape[1], m, call.v.shape[-1], generator=generator)
    alone = _attended(call, q, k, v, 1) if row == 0 else None
    both = alone or _attended(call, q, k, v, b, row)
    if both is None:
        return None
    out, seen = both
    pattern, heads = seen[0].transpose(0, 1).float().cpu(), h // call.v.shape[1]
    wanted = pattern @ v[0].repeat_interleave(heads, 0)
    errors = (out[0].transpose(0, 1).float().cpu() - wanted).abs().amax((1, 2))
    return Exercise(q[0], k[0], pattern, errors)


def _attended(
    call: Call, q: Tensor, k: Tensor, v: Tensor, rows: int, row: int = 0
) -> tuple[Float[Tensor, "1 n h e"], Float[Tensor, "1 n h m"]] | None:
    """What the function makes of values and of the identity in one row, whose negatives are in the others;
    None where it does not run."""
    (_, h, n, _), (_, g, m, _), attend = q.shape, v.shape, call.attend
    if attend is None:
        return None
    keys = torch.arange(m)
    columns = [(keys[:, None] == some).to(v).expand(1, g, -1, -1) for some in keys.split(LONGEST)]
    signs = torch.where(torch.arange(rows) == row, 1.0, -1.0)[:, None, None, None]
    sides = [(x if rows == 1 else signs * x).to(call.q.device) for x in (q, k, v, *columns)]
    try:
        out, *parts = (attend(sides[0], sides[1], one) for one in sides[2:])
        seen = torch.cat(parts, -1)
    except FAILURES:  # which functions of other devices, widths or batches raise
        return None
    if seen.shape != (rows, n, h, m) or out.shape != (rows, n, h, v.shape[-1]):
        return None
    return out[row : row + 1], seen[row : row + 1]
