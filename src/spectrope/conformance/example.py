"""The smallest example of a failure, as code that can be run."""

from dataclasses import dataclass

import torch
from torch import Tensor

from spectrope.conformance.cells import HEAD_DIM, RotaryCell
from spectrope.conformance.implementation import RotaryFunction
from spectrope.conformance.measured import error_of, judged
from spectrope.conformance.oracle import rotated

MOST = 4  # Numbers that are printed of a vector.


@dataclass(frozen=True)
class Example:
    """One failure.

    Args:
        name: Of the function.
        cell: Where it fails.
        direction: "forward" or "backward".
        code: Lines of Python up to the call.
        said: What is wrong.
    """

    name: str
    cell: RotaryCell
    direction: str
    code: str
    said: str

    def __str__(self) -> str:
        return f"{self.code}\n# {self.said}"


def smallest(
    tested: RotaryFunction, cell: RotaryCell, direction: str, error: float | None, note: str
) -> Example:
    """One token and one coordinate where they fail, else the cell's vectors."""
    asked = ", ".join(f"{k}={v!r}" for k, v in cell.asked().items() if k in tested.takes)
    call = f"apply_rope(x, positions{', ' + asked if asked else ''})"
    if error is None or note:
        return Example(tested.name, cell, direction, _whole(cell, call), note or "fails")
    for place in range(cell.positions().shape[-1]):
        positions = cell.positions()[..., place : place + 1]
        for coordinate in range(cell.rotated):
            said = _tried(tested, cell, positions, coordinate, direction)
            if said:
                lines = [
                    f"x = torch.zeros(1, 1, 1, {HEAD_DIM}, dtype=torch.{cell.dtype}, requires_grad=True)",
                    f"unit = torch.eye({HEAD_DIM}, dtype=torch.{cell.dtype})[{coordinate}]",
                    f"positions = torch.tensor({positions.tolist()})",
                ]
                y = call.replace("(x,", "(x + unit,") if direction == "forward" else call
                last = f"y = {y}" if direction == "forward" else f"({y} * unit).sum().backward()"
                return Example(tested.name, cell, direction, "\n".join([*lines, last]), said)
    said = f"error {error:.2g} of the largest coordinate"
    return Example(tested.name, cell, direction, _whole(cell, call), said)


def _whole(cell: RotaryCell, call: str) -> str:
    shape = tuple(cell.vectors("x").shape)
    lines = [
        f"x = torch.randn{shape}.to(torch.{cell.dtype}).requires_grad_()",
        f"positions = torch.tensor({cell.positions().tolist()})",
        f"y = {call}",
    ]
    return "\n".join(lines)


def _tried(
    tested: RotaryFunction, cell: RotaryCell, positions: Tensor, coordinate: int, direction: str
) -> str:
    """What is wrong with a single coordinate of a single token, "" if nothing is."""
    unit = torch.zeros(1, 1, 1, HEAD_DIM, dtype=cell.vectors("x").dtype)
    unit[..., coordinate] = 1
    x = unit.clone().requires_grad_() if direction == "forward" else torch.zeros_like(unit).requires_grad_()
    try:
        y = tested(x, positions.clone(), cell.asked())
        if direction == "backward":
            (y,) = torch.autograd.grad(y, x, unit.to(y.dtype))
    except (Exception, SystemExit):  # What a single token does may differ from what many do.
        return ""
    wanted = rotated(cell, unit, positions, sense=1 if direction == "forward" else -1)
    if judged(cell, positions, error_of(cell, y, wanted, unit)) != "wrong":
        return ""
    got, right = y.detach().double().flatten(), wanted.flatten()
    at = int((got - right).abs().argmax())
    name = "y" if direction == "forward" else "x.grad"
    return f"{name}[0, 0, 0, {at}] should be {right[at]:.5g}; it is {got[at]:.5g}"
