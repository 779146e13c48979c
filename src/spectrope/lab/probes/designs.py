"""Balanced designs of token sequences, in which content and position are independent by construction."""

import torch
from jaxtyping import Int
from torch import Tensor

from spectrope.core import torch_stream
from spectrope.tasks import Batch

MOST = 17  # Tokens and positions of a design at most; the number of sequences is its square.


def balanced_sequences(tokens: Int[Tensor, " w"], longest: int, seed: int) -> Batch:
    r"""Sequences in which every ordered pair of tokens is at every pair of positions exactly once.

    For a prime p, sequence (a, b) has token :math:`(a + b\,i) \bmod p` at position i < p, an orthogonal array
    of strength 2. All effects of tokens are then orthogonal to all effects of positions, and so are, in the
    first layer, the terms of logits with tokens on different sides.

    Args:
        tokens: Token ids to choose from, at least 2.
        longest: Number of positions at most, at least 2.
        seed: Seed of the choice and order of the tokens.

    Returns:
        p² sequences of p tokens, p being the greatest prime that neither the number of tokens nor that of
        positions nor `MOST` is below. Labels are 0.

    References:
        Orthogonal Arrays of Strength Two and Three (Bush, 1952), for prime powers.
    """
    p = _prime_up_to(min(len(tokens), longest, MOST))
    chosen = tokens[torch.randperm(len(tokens), generator=torch_stream(seed, "balanced"))[:p]]
    index = torch.arange(p)
    place = (index[:, None, None] + index[None, :, None] * index) % p
    inputs = chosen[place.flatten(0, 1)]
    return Batch(inputs, torch.zeros(p * p).long(), torch.full((p * p,), p))


def _prime_up_to(n: int) -> int:
    return next(p for p in range(n, 1, -1) if all(p % d for d in range(2, p)))
