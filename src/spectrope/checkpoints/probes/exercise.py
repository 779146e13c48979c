"""Random queries, keys and values through a model's own attention function."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from spectrope.checkpoints.adapters import FAILURES, Call
from spectrope.core import torch_stream

LONGEST = 1024  # Positions up to which the function is run: its pattern is quadratic in them.
SPREAD = 3.0  # Standard deviation of the logits, at which caps and sinks show.


@dataclass(frozen=True, eq=False)
class Exercise:
    """What an attention function made of random inputs.

    Args:
        q: Queries.
        k: Keys.
        pattern: Weights that it gave to the keys.
        errors: Largest departure of each head's output for random values from its pattern times those values.
    """

    q: Float[Tensor, "h n d"]
    k: Float[Tensor, "g n d"]
    pattern: Float[Tensor, "h n n"]
    errors: Float[Tensor, " h"]

    @property
    def groups(self) -> int:
        """Query heads per key-value head."""
        return len(self.q) // len(self.k)

    def products(self, tiled: bool = False) -> Float[Tensor, "h n n"]:
        """Dot products, of each query head with its own keys, or with those of the heads in turn."""
        k = self.k.repeat(self.groups, 1, 1) if tiled else self.k.repeat_interleave(self.groups, 0)
        return self.q @ k.mT


@torch.no_grad()
def exercise(call: Call, seed: int) -> Exercise | None:
    """Run the attention function of a call on random inputs; None where it is not seen or does not run.

    Values that are the rows of the identity show the pattern.

    Args:
        call: Of one layer, over its whole sequence.
        seed: Of the inputs.
    """
    (b, h, n, d), g = call.q.shape, call.k.shape[1]
    if call.attend is None or call.v is None or n != call.k.shape[2] or n > LONGEST:
        return None
    generator = torch_stream(seed, "exercise", call.module)
    size = (SPREAD / ((call.scale or 1.0) * d**0.5)) ** 0.5
    q, k = (size * torch.randn(b, heads, n, d, generator=generator) for heads in (h, g))
    v = torch.randn(b, call.v.shape[1], n, call.v.shape[-1], generator=generator)
    identity = torch.eye(n).expand(b, call.v.shape[1], n, n)
    try:
        out, seen = (call.attend(*(x.to(call.q.device) for x in (q, k, one))) for one in (v, identity))
    except FAILURES:  # which functions of other devices or widths raise
        return None
    if seen.shape != (b, n, h, n) or out.shape != (b, n, h, v.shape[-1]):
        return None
    pattern, heads = seen[0].transpose(0, 1).double().cpu(), h // call.v.shape[1]
    wanted = pattern @ v[0].repeat_interleave(heads, 0).double()
    errors = (out[0].transpose(0, 1).double().cpu() - wanted).abs().amax((1, 2))
    return Exercise(q[0].double(), k[0].double(), pattern, errors)
