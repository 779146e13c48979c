"""Detect angles computed in low precision by reproducing the computation."""

import itertools
from collections.abc import Iterator

import torch
from jaxtyping import Complex, Float
from torch import Tensor

from spectrope.checkpoints.adapters import Call

DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16}
EXPLAINED = 0.1  # Largest share of the departure from exact angles that a rounding may leave unexplained.


def underflowing(call: Call) -> str:
    """The sides whose vectors are so small that float16 rounds them more than larger ones; "" if none are."""
    sides = {"queries": call.q, "keys": call.k}
    small = [side for side, x in sides.items() if _underflows(x)]
    return " and ".join(small)


def _underflows(x: Tensor) -> bool:
    """Whether the size that most coordinates exceed is next to the smallest numbers of the type."""
    some = x[x != 0].abs().float()
    return len(some) > 0 and bool(some.median() < torch.finfo(x.dtype).smallest_normal)


def rounding_of(z: Complex[Tensor, "n t m"], frequencies: Float[Tensor, " m"], bound: float) -> str:
    """The rounding of frequencies, positions or angles that explains phases exactly; "" if none does.

    Args:
        z: Pairs of n vectors at t tokens.
        frequencies: Radians per position of each pair, as declared.
        bound: Departure in radians that is left to the arithmetic of the model itself.
    """
    c = (z * z[:, :1].conj()).sum(0)
    t = torch.arange(len(c), dtype=torch.float64, device=c.device)[:, None]
    exact = _apart(c, t * frequencies)
    if exact <= bound:
        return ""
    seen = [(_apart(c, angles.double()), name) for name, angles in _rounded(t, frequencies)]
    left, name = min(seen)
    return name if left <= max(bound, EXPLAINED * exact) else ""


def _apart(c: Complex[Tensor, "t m"], angles: Float[Tensor, "t m"]) -> float:
    """Largest departure of phases from angles, turned either way, in radians."""
    both = (
        (c * torch.polar(torch.ones_like(angles), -way * (angles - angles[:1]))).angle().abs().max()
        for way in (1, -1)
    )
    return min(one.item() for one in both)


def _rounded(t: Float[Tensor, "t 1"], frequencies: Float[Tensor, " m"]) -> Iterator[tuple[str, Tensor]]:
    """Angles with rounded tables, or with frequencies, positions or products rounded, fewest first."""
    for name, dtype in DTYPES.items():

        def low(x: Tensor, dtype: torch.dtype = dtype) -> Tensor:
            return x.to(dtype).double()

        exact = frequencies * t
        sines, cosines = exact.sin(), exact.cos()
        yield f"{name} sines and cosines", torch.atan2(low(sines), low(cosines))
        yield f"{name} sines", torch.atan2(low(sines), cosines)
        yield f"{name} cosines", torch.atan2(sines, low(cosines))
        for count, parts in itertools.product((1, 2, 3), itertools.product((0, 1), repeat=3)):
            if sum(parts) != count:
                continue
            a, b = low(frequencies) if parts[0] else frequencies, low(t) if parts[1] else t
            words = [w for w, on in zip(("frequencies", "positions", "angles"), parts, strict=True) if on]
            yield f"{name} {' and '.join(words)}", low(a * b) if parts[2] else a * b
