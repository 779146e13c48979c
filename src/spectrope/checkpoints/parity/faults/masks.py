"""Faults of which keys a query sees."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from spectrope.checkpoints.adapters.call import split_mask
from spectrope.checkpoints.adapters.substitute import Given
from spectrope.checkpoints.parity.faults.base import SimulatedChange, Simulation, any_layer, lengths
from spectrope.checkpoints.parity.sites import AttentionSite

Allowed = Callable[[float, Int[Tensor, "n 1"], Int[Tensor, "1 n"]], Bool[Tensor, "n n"]]
BLOCKS = (16.0, 32.0, 64.0, 128.0)


def mask_faults(length: int) -> Iterator[Simulation]:
    """Faults of any layer, in prompts of so many tokens."""
    sizes = lengths(2, length - 2)
    yield Simulation(("SPE201",), "queries see later keys", _seeing(_all), of=any_layer)
    yield Simulation(
        ("SPE201",), "queries see the rest of a block of {x:.0f} keys", _seeing(_rest_of_block),
        tuple(block for block in BLOCKS if block < length), "listed", any_layer,
    )  # fmt: skip
    yield Simulation(("SPE202",), "window of {x} keys", _hiding(_window), sizes, "whole", any_layer)
    yield Simulation(("SPE202",), "chunks of {x} keys", _hiding(_chunk), sizes, "whole", any_layer)
    yield Simulation(("SPE202",), "no window", _seeing(_past), of=any_layer)


def _all(x: float, i: Tensor, j: Tensor) -> Tensor:
    return (i >= 0) & (j >= 0)


def _past(x: float, i: Tensor, j: Tensor) -> Tensor:
    return j <= i


def _rest_of_block(x: float, i: Tensor, j: Tensor) -> Tensor:
    size = round(x)
    return j < size * (i // size + 1)


def _window(x: float, i: Tensor, j: Tensor) -> Tensor:
    return i - j < round(x)


def _chunk(x: float, i: Tensor, j: Tensor) -> Tensor:
    return i // round(x) == j // round(x)


def _seeing(allowed: Allowed) -> SimulatedChange:
    """These keys, whatever the layer's own mask."""

    def change(x: float, site: AttentionSite, given: Given) -> Given:
        return replace(given, mask=_drawn(allowed, x, given))

    return change


def _hiding(allowed: Allowed) -> SimulatedChange:
    """These keys among those of the layer's own mask."""

    def change(x: float, site: AttentionSite, given: Given) -> Given:
        own, _ = split_mask(given.mask, given.q, given.k, causal=True)
        return replace(given, mask=own & _drawn(allowed, x, given))

    return change


def _drawn(allowed: Allowed, x: float, given: Given) -> Bool[Tensor, "1 1 n n"]:
    i = torch.arange(given.q.shape[2], device=given.q.device)[:, None]
    j = torch.arange(given.k.shape[2], device=given.q.device)[None, :]
    return allowed(x, i, j)[None, None]
