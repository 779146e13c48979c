"""What a rotary embedding should return, in float64."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from spectrope.conformance.cells import BASE, SCALINGS, RotaryCell
from spectrope.encodings import Geometric, Linear, Llama3, Schedule, YaRN

FLOAT32 = 2.0**-22  # Error of an angle of 1 radian per position computed in float32, per position.


def schedule_of(scaling: str, base: float = BASE) -> Schedule:
    """The frequency schedule of a scaling at a base."""
    fields: dict[str, Any] = dict(SCALINGS[scaling])
    kind, trained = fields.pop("rope_type", "default"), fields.pop("original_max_position_embeddings", None)
    if trained is not None:
        fields["trained_length"] = trained
    kinds = {"default": Geometric, "linear": Linear, "llama3": Llama3, "yarn": YaRN}
    return kinds[kind](base=base, **fields)


def angles(cell: RotaryCell, positions: Int[Tensor, "*axes t"], base: float = BASE) -> Float[Tensor, "t m"]:
    """Radians by which each pair turns at each position."""
    frequencies = schedule_of(cell.scaling, base).frequencies(cell.rotated)
    if cell.parts is None:
        return positions[:, None].double() * frequencies
    axis = torch.cat([torch.full((size,), number) for number, size in enumerate(cell.parts)])
    return positions[axis].T.double() * frequencies


def rotated(
    cell: RotaryCell,
    x: Float[Tensor, "*b t d"],
    positions: Int[Tensor, "*axes t"],
    sense: int = 1,
    base: float = BASE,
) -> Float[Tensor, "*b t d"]:
    r"""The rotation of a cell, or with sense -1 what its gradient takes: the rotation back.

    A pair :math:`(a, b)` becomes :math:`g\,(a\cos\varphi - b\sin\varphi,\; a\sin\varphi + b\cos\varphi)`,
    with the schedule's gain g.
    """
    schedule, phi = schedule_of(cell.scaling, base), sense * angles(cell, positions, base)
    cos, sin = schedule.gain * phi.cos(), schedule.gain * phi.sin()
    part, rest = x.double()[..., : cell.rotated], x.double()[..., cell.rotated :]
    if cell.layout == "interleaved":
        a, b = part[..., ::2], part[..., 1::2]
        turned = torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)
    else:
        a, b = part.chunk(2, -1)
        turned = torch.cat([a * cos - b * sin, a * sin + b * cos], -1)
    return torch.cat([turned, rest], -1)


def largest_angle(cell: RotaryCell, positions: Int[Tensor, "*axes t"]) -> float:
    """The largest angle, in radians, on which the error of float32 depends."""
    return float(angles(cell, positions).abs().max())
