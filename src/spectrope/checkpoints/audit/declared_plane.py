"""The rotation by row and column that a vision tower's configuration and architecture declare."""

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from spectrope.checkpoints.adapters.towers import Tower
from spectrope.checkpoints.audit.fields import Declaration
from spectrope.checkpoints.audit.plane import PlaneTurning
from spectrope.core import ConfigError


@dataclass(frozen=True, eq=False)
class DeclaredPlane:
    r"""Pairs turn by :math:`\sigma_a\,b^{-e_j}` radians per step on the axis a of pair j.

    Args:
        base: The base b.
        axes: Axis of each pair: 0 turns with the row, 1 with the column, 2 with the picture of a video.
        exponents: The exponent :math:`e_j` of each pair.
        scales: The factor :math:`\sigma_a` of each axis.
        turning: The rotation itself.
    """

    base: float
    axes: tuple[int, ...]
    exponents: tuple[float, ...]
    scales: tuple[float, float]
    turning: PlaneTurning

    def at_base(self, base: float, factors: tuple[float, float] = (1.0, 1.0)) -> "DeclaredPlane":
        """The same with another base, and with factors on the frequencies of each axis."""
        scales = (self.scales[0] * factors[0], self.scales[1] * factors[1])
        rows, columns = _frequencies(base, self.axes, self.exponents, scales)
        turning = replace(self.turning, rows=rows, columns=columns, base=base)
        return replace(self, base=base, scales=scales, turning=turning)


def declared_plane(tower: Tower, layer: int, head_dim: int) -> DeclaredPlane:
    r"""What a layer of a tower is declared to apply to the picture that it gets.

    DINOv3 scales row r of R to the coordinate :math:`(2r + 1) / R - 1`, of which 1 is :math:`2\pi` radians
    of the fastest pair, so a row is :math:`4\pi / R` and the first patch lies at row :math:`(1 - R) / 2`.

    Args:
        tower: The tower.
        layer: Its number.
        head_dim: Width of queries and keys.

    Raises:
        ConfigError: If its configuration has no base.
    """
    n_axes = 3 if tower.form.split == "time, rows, columns" else 2
    base, each = _base(Declaration(**tower.declared)), head_dim // (2 * n_axes)
    index = torch.arange(each, dtype=torch.float64)
    axes, exponents = _split(tower.form.split, index / each)
    step = tower.step(layer)
    scales, origin = (step, step), (tower.form.origin, tower.form.origin)
    if tower.form.normalised:
        n_rows, n_columns = tower.grid
        scales = (4 * math.pi / n_rows, 4 * math.pi / n_columns)
        origin = ((1 - n_rows) / 2, (1 - n_columns) / 2)
    rows, columns = _frequencies(base, axes, exponents, scales)
    exact = (0.0,) * len(axes)
    turning = PlaneTurning(tower.form.pairing, rows, columns, exact, exact, base, origin, 1.0)
    return DeclaredPlane(base, axes, exponents, scales, turning)


def _split(split: str, exponents: Float[Tensor, " m"]) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Axis and exponent of each pair."""
    each = len(exponents)
    both, halves = exponents.repeat(2), torch.arange(2).repeat_interleave(each)
    if split == "time, rows, columns":
        both, halves = exponents.repeat(3), torch.tensor([2, 0, 1]).repeat_interleave(each)
    elif split == "alternate frequencies":  # e of columns lies half a step behind that of rows
        both = torch.cat([exponents, exponents + 0.5 / each])
    elif split == "columns, rows":
        halves = 1 - halves
    elif split == "columns and rows in turn":
        both, halves = exponents.repeat_interleave(2), 1 - torch.arange(2).repeat(each)
    return tuple(halves.tolist()), tuple(both.tolist())


def _frequencies(
    base: float, axes: tuple[int, ...], exponents: tuple[float, ...], scales: tuple[float, float]
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Radians per row and per column of each pair."""
    pairs = list(zip(axes, exponents, strict=True))
    rows, columns = (
        tuple(scales[wanted] * base**-exponent if axis == wanted else 0.0 for axis, exponent in pairs)
        for wanted in (0, 1)
    )
    return rows, columns


def _base(declaration: Declaration) -> float:
    """In the new layout or the old one; what the file says comes first."""
    for fields in (declaration.file, declaration.library):
        parameters: dict[str, Any] = fields.get("rope_parameters") or fields
        if (base := parameters.get("rope_theta")) is not None:
            return float(base)
    raise ConfigError(f"the configuration of {declaration.model_type!r} has no rope_theta.")
