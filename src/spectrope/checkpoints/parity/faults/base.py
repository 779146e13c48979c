"""What a simulated fault is, and the rotations that several of them apply."""

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from spectrope.checkpoints.adapters.substitute import Given, substituting
from spectrope.checkpoints.audit.layout import Layout
from spectrope.checkpoints.audit.substitution import multiplied
from spectrope.checkpoints.parity.sites import AttentionSite, LocalCopy, places

ParameterScale = Literal["one", "listed", "whole", "linear", "logarithmic"]
SimulatedChange = Callable[[float, AttentionSite, Given], Given]
ForwardHook = Callable[[nn.Module, Any, Any], Any]
SimulatedHooks = Callable[[float, LocalCopy, Sequence[int]], Iterable[tuple[nn.Module, ForwardHook]]]


def as_given(x: float, site: AttentionSite, given: Given) -> Given:
    """For faults outside of attention functions."""
    return given


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
        hooks: Modules outside of attention functions with forward hooks, for a value and some layers.
        in_layers: Whether it can be in some layers alone.
    """

    codes: tuple[str, ...]
    name: str
    change: SimulatedChange
    values: tuple[float, ...] = (0.0,)
    scale: ParameterScale = "one"
    of: Callable[[AttentionSite], bool] = lambda site: site.layout is not None
    hooks: SimulatedHooks = lambda x, copy, layers: ()
    in_layers: bool = True

    def words(self, value: float) -> str:
        """The fault with a value."""
        return self.name.format(x=round(value) if self.scale == "whole" else value)

    @contextlib.contextmanager
    def put_into(self, copy: LocalCopy, value: float, layers: Sequence[int]) -> Iterator[None]:
        """Simulate the fault while the block runs.

        Args:
            copy: The model.
            value: Of the parameter.
            layers: Where; all layers if empty.
        """

        def change(module: nn.Module, given: Given) -> Given:
            site = copy.sites.get(module)
            if site is None or (layers and site.layer not in layers) or not self.of(site):
                return given
            return self.change(value, site, given)

        with contextlib.ExitStack() as stack:
            for module, hook in self.hooks(value, copy, layers):
                stack.callback(module.register_forward_hook(hook).remove)
            stack.enter_context(substituting(copy.model, change))
            yield


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
