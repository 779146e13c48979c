"""CLEX: frequencies that follow a differential equation in the length of the sequence."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from spectrope.core import own_precision, require, require_least
from spectrope.encodings.base import Scope, Tag
from spectrope.encodings.parts import Constant
from spectrope.encodings.schedules.base import ROTATION, Schedule, geometric

Derivative = Callable[[Tensor], Tensor]


@dataclass(frozen=True, kw_only=True)
class CLEX(Schedule, name="clex"):
    r"""Integrates a trained differential equation from the trained scale to larger ones:
    :math:`\frac{d}{dt}\ln\omega_j = f_j(\ln\omega, t) + \xi_j(t)`.

    A sequence of up to t times the trained length L uses the frequencies at time t, a whole number of at most
    `max_factor`. The length of a sequence is its largest position plus one. :math:`\xi_j(t) =
    -\frac{4j}{(d-2)(2t-1)}` is the derivative of NTK-aware scaling by 2t - 1, and f is a network with one
    hidden layer whose input is :math:`\ln\omega` plus the logarithm of the scaled frequencies. Its last layer
    is initialised to zero, so training starts from NTK-aware scaling. The equation is solved by the classical
    Runge-Kutta method.

    The network learns from sequences whose positions go beyond L, as those of the rule `random_subset` do.

    References:
        CLEX: Continuous Length Extrapolation for Large Language Models (Chen et al., 2024); the authors'
        code, whose training also draws t and positions at random; of its two activations, the hyperbolic
        tangent.
    """

    laws: ClassVar[frozenset[Tag]] = (ROTATION - {Tag.SHIFT_INVARIANT}) | {Tag.LEARNED}
    scope: ClassVar[Scope] = Scope.LAYER
    prefix_consistent: ClassVar[bool] = False

    base: float = 10000.0
    trained_length: int = 128  # Positions L of time 1.
    max_factor: int = 8  # Largest time; longer sequences take its frequencies.
    hidden: int = 1  # Width of the hidden layer, in widths of a head.
    step: float = 0.1  # Of the Runge-Kutta method, at most.

    def __post_init__(self) -> None:
        require(self.base > 0, self, "base", "positive")
        require_least(self, 1, "trained_length", "hidden")
        require_least(self, 2, "max_factor")
        require(0 < self.step <= 1, self, "step", "above 0 and at most 1")

    def frequencies(self, width: int) -> Float[Tensor, " m"]:
        return geometric(self.base, width)

    def build(self, width: int) -> nn.Module:
        require(width > 2, self, "base", "for heads of a width above 2", "NTK-aware scaling needs two pairs.")
        return ContinuousAngles(self, width)


class ContinuousAngles(nn.Module):
    """Angles by frequencies that are integrated up to the length of each sequence.

    Args:
        schedule: The rule.
        width: Width of the rotated vectors, above 2.
    """

    def __init__(self, schedule: CLEX, width: int) -> None:
        super().__init__()
        self.trained_length, self.max_factor = schedule.trained_length, schedule.max_factor
        self.steps = math.ceil(1 / schedule.step)
        self.start = Constant(schedule.frequencies(width).log())
        self.exponents = Constant(-2 * torch.arange(width // 2, dtype=torch.float64) / (width - 2))
        hidden = schedule.hidden * width
        self.up = nn.Parameter(torch.empty(width // 2, hidden))
        nn.init.kaiming_uniform_(self.up, a=math.sqrt(5))
        self.down = nn.Parameter(torch.zeros(hidden, width // 2))

    def derivative(self, time: float, logarithms: Float[Tensor, " m"]) -> Float[Tensor, " m"]:
        """Change of the logarithms per unit of time."""
        (change,) = self._changes(torch.tensor([time], dtype=torch.float64, device=logarithms.device))
        return change(logarithms)

    def frequencies(self) -> Float[Tensor, "f m"]:
        """Radians per position at times 1, ..., `max_factor`."""
        start, steps = self.start.value, (self.max_factor - 1) * self.steps
        solution, size = [start], 1 / self.steps
        with own_precision(start):
            half_steps = torch.arange(2 * steps + 1, dtype=torch.float64, device=start.device)
            changes = self._changes(1 + half_steps * (size / 2))
            for step in range(steps):
                solution.append(_step(changes[2 * step : 2 * step + 3], solution[-1], size))
        return torch.stack(solution[:: self.steps]).exp()

    def _changes(self, times: Float[Tensor, " n"]) -> list[Derivative]:
        """For each time, the derivative as a function of the logarithms."""
        up, down, scale = self.up.double(), self.down.double(), 2 * times[:, None] - 1
        scaled = self.start.value + self.exponents.value * scale.log()
        drifts, inputs = self.exponents.value * (2 / scale), scaled @ up

        def derivative(logarithms: Tensor, given: Tensor, drift: Tensor) -> Tensor:
            return torch.addmv(drift, down.T, torch.addmv(given, up.T, logarithms).tanh())

        return [partial(derivative, given=g, drift=d) for g, d in zip(inputs, drifts, strict=True)]

    def forward(self, pos: Tensor) -> Float[Tensor, "b t m"]:
        """Angles of positions with shape (b or 1, t)."""
        length = pos.double().amax(-1) + 1
        time = (length / self.trained_length).ceil().clamp(1, self.max_factor).long()
        return pos[..., None] * self.frequencies()[time - 1][:, None]


def _step(changes: list[Derivative], here: Tensor, size: float) -> Tensor:
    """The solution one step later, by the derivatives at the start, middle and end of the step."""
    start, middle, end = changes
    first = start(here)
    second = middle(torch.add(here, first, alpha=size / 2))
    third = middle(torch.add(here, second, alpha=size / 2))
    fourth = end(torch.add(here, third, alpha=size))
    return torch.add(here, first + 2 * (second + third) + fourth, alpha=size / 6)
