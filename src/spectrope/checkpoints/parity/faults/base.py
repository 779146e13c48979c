"""What a simulated fault is, and the rotations that several of them apply."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from spectrope.checkpoints.adapters.substitute import Given
from spectrope.checkpoints.audit.layout import Layout
from spectrope.checkpoints.audit.substitution import multiplied
from spectrope.checkpoints.parity.sites import AttentionSite, places

ParameterScale = Literal["one", "listed", "whole", "linear", "logarithmic"]
SimulatedChange = Callable[[float, AttentionSite, Given], Given]


@dataclass(frozen=True, eq=False)
class Simulation:
    """A simulated fault, with a parameter.

    Args:
        codes: In the catalogue; several where the faults are one and the same function on this model.
        name: In a few words, with the value as `{x:...}`.
        change: What it makes of the arguments of a layer's attention function.
        values: Of the parameter, ascending: where the search begins.
        scale: What lies between these values: "one" where there is no parameter, "listed" where only these
            values are meant, "whole" numbers, or any number on a linear or logarithmic scale.
        of: Which layers it can be in.
    """

    codes: tuple[str, ...]
    name: str
    change: SimulatedChange
    values: tuple[float, ...] = (0.0,)
    scale: ParameterScale = "one"
    of: Callable[[AttentionSite], bool] = lambda site: site.layout is not None

    def words(self, value: float) -> str:
        """The fault with a value."""
        return self.name.format(x=round(value) if self.scale == "whole" else value)


def any_layer(site: AttentionSite) -> bool:
    """For faults that need no rotation."""
    return True


def turned(
    x: Float[Tensor, "b h t d"], layout: Layout, angles: Float[Tensor, "t m"]
) -> Float[Tensor, "b h t d"]:
    """Some pairs of x, turned by further angles."""
    angles = angles.to(x.device)
    return multiplied(x, layout, torch.polar(torch.ones_like(angles), angles).to(torch.complex64))


def both_turned(given: Given, site: AttentionSite, angles: Float[Tensor, "t m"]) -> Given:
    """Queries and keys, turned by further angles."""
    assert site.layout is not None
    return replace(given, q=turned(given.q, site.layout, angles), k=turned(given.k, site.layout, angles))


def angles_of(given: Given, site: AttentionSite) -> Float[Tensor, "t m"]:
    """The angles by which the layer has turned its queries and keys."""
    return places(given) * site.frequencies.to(given.q.device)


def unrotated(given: Given, site: AttentionSite) -> Given:
    """Queries and keys as they were before the layer turned them."""
    return both_turned(given, site, -angles_of(given, site))


def grid(low: float, high: float, n: int) -> tuple[float, ...]:
    """Values at equal ratios."""
    return tuple(torch.logspace(math.log10(low), math.log10(high), n, dtype=torch.float64).tolist())


def lengths(low: int, high: int) -> tuple[float, ...]:
    """Whole numbers at about equal ratios."""
    n = max(2, round(6 * torch.tensor(high / low).log2().item()))
    return tuple(float(x) for x in sorted({round(x) for x in grid(float(low), float(high), n)}))
