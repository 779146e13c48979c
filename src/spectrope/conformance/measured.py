"""Error of a result relative to the reference, and its classification."""

from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from spectrope.conformance.cells import DTYPES, RotaryCell
from spectrope.conformance.oracle import FLOAT32, largest_angle, schedule_of

CellVerdict = Literal["exact", "float32", "wrong", "fails", "not offered"]
ROUNDINGS = 4  # Of the type, which a rotation may take.


def error_of(
    cell: RotaryCell, y: Float[Tensor, "*b t d"], wanted: Float[Tensor, "*b t d"], x: Float[Tensor, "*b t d"]
) -> float:
    """The largest difference, as a share of the largest coordinate of the same vector; infinite for NaN."""
    size = schedule_of(cell.scaling).gain * x.double().abs().amax(-1, keepdim=True)
    share = float(((y.detach().double() - wanted).abs() / size).max())
    return share if share == share else float("inf")


def judged(cell: RotaryCell, positions: Int[Tensor, "*axes t"], error: float) -> CellVerdict:
    """Classify an error."""
    exact = ROUNDINGS * torch.finfo(DTYPES[cell.dtype]).eps
    if error <= exact:
        return "exact"
    return "float32" if error <= exact + FLOAT32 * largest_angle(cell, positions) else "wrong"
