"""Tables of sines and cosines that an architecture computes, and what looked-up vectors are instead."""

import math
from collections.abc import Iterator
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from spectrope.checkpoints.audit.fields import Declaration
from spectrope.core import dtype_name

Convention = Literal["fairseq", "even"]
# Frequencies from 1 down to 1 / 10000, both included, or in the progression of the Transformer's paper; both
# with all sines before all cosines.
TABLES: dict[str, Convention] = {
    **dict.fromkeys(("fsmt", "m2m_100", "nllb-moe", "pegasus_x", "xglm"), "fairseq"),
    **dict.fromkeys(("seamless_m4t", "seamless_m4t_v2"), "fairseq"),
    **dict.fromkeys(("ctrl", "marian", "pegasus"), "even"),
}
BASES = (1e3, 1e5, 1e6)
SHIFTS = (1, -1, 2, -2)
LOW = (torch.bfloat16, torch.float16)
STORED = (*LOW, torch.float8_e4m3fn, torch.float8_e5m2)


def declared_sinusoids(declaration: Declaration) -> Convention | None:
    """How an architecture computes its table of positions; None where it computes none."""
    return TABLES.get(declaration.model_type)


def sinusoids(
    positions: Int[Tensor, " t"],
    width: int,
    convention: Convention,
    base: float = 10000.0,
    dtype: torch.dtype = torch.float64,
) -> Float[Tensor, "t c"]:
    """Sines, then cosines, of positions at each frequency, with angles in a precision."""
    half = width // 2
    steps = half - 1 if convention == "fairseq" else half
    exponents = torch.arange(half, dtype=dtype) * (-math.log(base) / max(steps, 1))
    angles = (positions[:, None] * exponents.exp()).double()
    return torch.cat([angles.sin(), angles.cos()], 1)


def departure(
    vectors: Float[Tensor, "t c"], first: int, convention: Convention, noise: float
) -> tuple[str, str] | None:
    """What looked-up vectors are in the place of the declared table; None if they are its rows.

    Args:
        vectors: Of consecutive tokens, or their departures from the mean.
        first: Position of the first of them.
        convention: Of the architecture.
        noise: Relative rounding error of the model's arithmetic.

    Returns:
        The respect ("absolute term" or "first position"), and what was found.
    """
    positions, width = torch.arange(len(vectors)) + first, vectors.shape[1] - vectors.shape[1] % 2
    seen = vectors[:, :width].double().cpu()
    if _alike(seen, sinusoids(positions, width, convention), noise):
        return None
    for respect, words, table in _others(positions, width, convention):
        if _alike(seen, table, noise):
            return respect, words
    return "absolute term", "vectors of no known convention"


def _alike(seen: Float[Tensor, "t c"], table: Float[Tensor, "t c"], noise: float) -> bool:
    """Whether vectors vary over positions as a table does."""
    a, b = (x - x.mean(0) for x in (seen, table))
    return bool((a - b).norm() <= max(1e-3, 4 * noise) * b.norm())


def _others(
    positions: Int[Tensor, " t"], width: int, convention: Convention
) -> Iterator[tuple[str, str, Float[Tensor, "t c"]]]:
    """Tables that are mistaken for the declared one: the respect, words, and vectors."""
    table, half = sinusoids(positions, width, convention), width // 2
    yield "absolute term", "sines and cosines in turns", table.view(-1, 2, half).transpose(1, 2).flatten(1)
    yield "absolute term", "cosines before sines", table.roll(half, 1)
    yield "absolute term", "sines alone in the other direction", sinusoids(-positions, width, convention)
    for by in SHIFTS:
        words = f"vectors of positions {abs(by)} {'later' if by > 0 else 'earlier'}"
        yield "first position", words, sinusoids(positions + by, width, convention)
    other: Convention = "even" if convention == "fairseq" else "fairseq"
    yield "absolute term", "frequencies in another progression", sinusoids(positions, width, other)
    for dtype in STORED:
        words = f"sines and cosines rounded to {dtype_name(dtype)}"
        yield "absolute term", words, table.to(dtype).double()
    for dtype in LOW:
        words = f"sines and cosines of angles in {dtype_name(dtype)}"
        yield "absolute term", words, sinusoids(positions, width, convention, dtype=dtype)
    for base in BASES:
        yield "absolute term", f"base {base:g}", sinusoids(positions, width, convention, base)
