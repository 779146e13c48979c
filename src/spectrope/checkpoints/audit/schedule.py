"""Which frequency schedule a measured rotation follows, without trusting any declaration."""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from spectrope.encodings.schedules.base import geometric

Scaling = Literal["none", "linear", "ramp", "reversed ramp", "stopped", "per pair"]


@dataclass(frozen=True)
class Fit:
    """A schedule in words.

    Args:
        base: Of the geometric progression that the frequencies start from.
        scaling: "none"; "linear", all slowed alike; "ramp", slow ones slowed more, as YaRN and Llama 3 do;
            "reversed ramp", the opposite; "stopped", the slowest stand still; "per pair", anything else.
        factor: Largest slowdown.
    """

    base: float
    scaling: Scaling
    factor: float

    def __str__(self) -> str:
        scaled = "" if self.scaling == "none" else f", {self.scaling} by {self.factor:.4g}"
        return f"base {rounded(self.base)}{scaled}"


def rounded(x: float) -> str:
    """Four significant digits, written out."""
    return f"{float(f'{x:.4g}'):g}"


def fit_schedule(frequencies: Float[Tensor, " m"], base: float, tolerance: float = 1e-3) -> Fit:
    r"""The schedule that frequencies follow.

    Frequencies in geometric progression :math:`\omega_j = b^{-2j/d}/s` are a base b, slowed by s; others are
    described by their slowdown against the base given.

    Args:
        frequencies: Radians per position of each pair.
        base: To measure slowdowns against where the frequencies are in no geometric progression.
        tolerance: Relative error allowed.
    """
    m = len(frequencies)
    turning = frequencies > 0
    if not bool(turning.all()):
        return Fit(base, "stopped", float("inf"))
    logs = frequencies.double().log()
    step = (logs[-1] - logs[0]) / max(m - 1, 1)
    line = logs[0] + step * torch.arange(m, dtype=torch.float64)
    if bool(((logs - line).abs() < tolerance).all()):
        factor = torch.exp(-logs[0]).item()
        found = torch.exp(-step * m).item() if m > 1 else base
        return Fit(found, "none" if abs(factor - 1) < tolerance else "linear", factor)
    return _against(geometric(base, 2 * m) / frequencies, base, tolerance)


def _against(slowdown: Float[Tensor, " m"], base: float, tolerance: float) -> Fit:
    steps, largest = slowdown.diff(), slowdown.max().item()
    if bool((steps > -tolerance * largest).all()) and abs(slowdown[0].item() - 1) < tolerance:
        return Fit(base, "ramp", largest)
    if bool((steps < tolerance * largest).all()) and abs(slowdown[-1].item() - 1) < tolerance:
        return Fit(base, "reversed ramp", largest)
    return Fit(base, "per pair", largest)
