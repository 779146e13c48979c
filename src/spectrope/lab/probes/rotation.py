"""The rotation that acts on one head, also inside composite encodings."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from spectrope.encodings import Composite, Encoding, Pairing, PerHead, RoPE, Tag


@dataclass(frozen=True, eq=False)
class SteadyRotation:
    """A rotation of all coordinate pairs at fixed frequencies.

    Args:
        frequencies: Radians per position, with shape (m,), in float64.
        pairs: Which coordinates form a pair.
    """

    frequencies: Float[Tensor, " m"]
    pairs: Pairing


def encoding_of_head(encoding: Encoding, head: int) -> Encoding:
    """The encoding of one head, counted from 0, where groups of heads have encodings of their own."""
    if isinstance(encoding, PerHead):
        for heads, part in encoding.parts():
            if heads.start <= head < heads.stop:
                return encoding_of_head(part, head - heads.start)
    return encoding


@torch.no_grad()
def steady_rotation(encoding: Encoding, width: int) -> SteadyRotation | None:
    """The rotation of queries and keys, or None if there is none, only a partial one, or one that varies.

    Args:
        encoding: Encoding of one head.
        width: Width of its queries and keys.
    """
    if isinstance(encoding, Composite):
        turning = [term for term in encoding.terms if term.turns]
        return steady_rotation(turning[0], width) if len(turning) == 1 else None
    if not isinstance(encoding, RoPE) or Tag.SHIFT_INVARIANT not in encoding.tags:
        return None
    device = next((tensor.device for tensor in (*encoding.parameters(), *encoding.buffers())), None)
    frequencies = encoding.angles(torch.ones(1, 1, dtype=torch.float64, device=device))[0, 0].cpu()
    return SteadyRotation(frequencies, encoding.pairing) if 2 * len(frequencies) == width else None
