"""Faults of which position a token has."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from spectrope.checkpoints.adapters.substitute import Given
from spectrope.checkpoints.parity.faults.base import SimulatedChange, Simulation, both_turned, lengths, turned
from spectrope.checkpoints.parity.sites import AttentionSite, LocalCopy, places

SHIFTS = tuple(float(x) for x in (*range(-8, 0), *range(1, 9)))


def position_faults(copy: LocalCopy, length: int) -> Iterator[Simulation]:
    """Faults of rotary layers, in prompts of so many tokens."""
    if all(site.layout is None for site in copy.sites.values()):
        return
    yield Simulation(("SPE108",), "keys {x:+.0f} positions from the queries", _shifted, SHIFTS, "listed")
    sizes = lengths(4, length - 2)
    yield Simulation(("SPE111",), "positions stay at {x}", _at(lambda x, t: t.clamp(max=x)), sizes, "whole")
    yield Simulation(
        ("SPE111",), "positions begin again after {x}", _at(lambda x, t: t % max(x, 1.0)), sizes, "whole"
    )
    yield Simulation(
        ("SPE111",), "{x} tokens share a position", _at(lambda x, t: t.div(x, rounding_mode="floor")),
        (2.0, 3.0, 4.0, 8.0), "listed",
    )  # fmt: skip
    yield Simulation(
        ("SPE111",), "parts of the prompt in zigzag over {x} devices", _at(_zigzag), (2.0, 4.0), "listed"
    )
    yield Simulation(("SPE111",), "positions count backwards", _at(lambda x, t: t.flip(0)))


def _at(of: Callable[[float, Float[Tensor, " t"]], Float[Tensor, " t"]]) -> SimulatedChange:
    """Turn queries and keys at other positions."""

    def change(x: float, site: AttentionSite, given: Given) -> Given:
        counted = places(given)[:, 0]
        difference = (of(x, counted) - counted)[:, None] * site.frequencies.to(given.q.device)
        return both_turned(given, site, difference)

    return change


def _zigzag(x: float, t: Float[Tensor, " t"]) -> Float[Tensor, " t"]:
    """The order in which context parallelism deals out parts: the first with the last, and so on."""
    parts = torch.tensor_split(t, 2 * round(x))
    order = [part for first in range(round(x)) for part in (parts[first], parts[-1 - first])]
    return torch.cat(order)


def _shifted(x: float, site: AttentionSite, given: Given) -> Given:
    assert site.layout is not None
    angles = (x * site.frequencies).expand(given.k.shape[2], -1)
    return replace(given, k=turned(given.k, site.layout, angles))
