"""Search for LongRoPE's factor of each frequency, on longer examples."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from spectrope.core import numpy_stream
from spectrope.encodings import NTK, LongRoPE, YaRN, geometric

Slowdowns = tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Search:
    """How far the search goes.

    Args:
        rounds: Rounds of mutation.
        mutants: Candidates in each round.
        parents: Best candidates so far, from which mutants are made.
        spread: Standard deviation of the logarithm of a mutation.
    """

    rounds: int = 3
    mutants: int = 6
    parents: int = 3
    spread: float = 0.3


def search_slowdowns(
    loss: Callable[[Slowdowns], float],
    width: int,
    base: float,
    factor: float,
    trained_length: int,
    seed: int,
    how: Search | None = None,
) -> Slowdowns:
    """The factors by which frequencies are slowed at the lowest loss.

    As in the paper, the search starts from linear, NTK-aware and YaRN's scaling, changes the best candidates
    at random, and keeps factors between 1 and the wanted one and rising from high frequencies to low ones.
    Its size is far below the paper's.

    Args:
        loss: Loss of a model with some factors, on longer examples that it is not scored on.
        width: Width of the rotated vectors.
        base: Base of the frequencies.
        factor: New length over the trained one.
        trained_length: In positions.
        seed: Seed of the mutations.
        how: Size of the search; default `Search()`.

    References:
        LongRoPE: Extending LLM Context Window Beyond 2 Million Tokens (Ding et al., 2024).
    """
    how = how or Search()
    known = {factors: loss(factors) for factors in _starts(width, base, factor, trained_length)}
    stream = numpy_stream(seed, "longrope search")
    for _ in range(how.rounds):
        parents = sorted(known, key=known.__getitem__)[: how.parents]
        for number in range(how.mutants):
            changed = np.array(parents[number % len(parents)])
            changed *= np.exp(how.spread * stream.standard_normal(len(changed)))
            mutant = tuple(np.maximum.accumulate(changed.clip(1.0, factor)).tolist())
            if mutant not in known:
                known[mutant] = loss(mutant)
    return min(known, key=known.__getitem__)


def schedule_of(factors: Slowdowns, base: float, factor: float, trained_length: int) -> LongRoPE:
    """The schedule with these factors beyond the trained length."""
    shared = {"base": base, "factor": factor, "trained_length": trained_length}
    return LongRoPE(**shared, short_factors=(1.0,), long_factors=factors)


def _starts(width: int, base: float, factor: float, trained_length: int) -> list[Slowdowns]:
    """Linear, NTK-aware and YaRN's scaling as factors."""
    plain = geometric(base, width)
    scaled = [
        plain / factor,
        NTK(base=base, factor=factor).frequencies(width),
        YaRN(base=base, factor=factor, trained_length=trained_length).frequencies(width),
    ]
    rising = (torch.cummax((plain / other).clamp(1, factor), 0).values for other in scaled)
    return [tuple(factors.tolist()) for factors in rising]
