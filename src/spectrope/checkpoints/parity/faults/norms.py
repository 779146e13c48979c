"""Faults of the norms of queries and keys."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from spectrope.checkpoints.adapters.substitute import Given
from spectrope.checkpoints.parity.faults.base import (
    ForwardHook,
    SimulatedHooks,
    Simulation,
    any_layer,
    as_given,
    both_turned,
    unrotated,
)
from spectrope.checkpoints.parity.sites import AttentionSite, LocalCopy, places

SIDES = {"queries and keys": "qk", "queries": "q", "keys": "k"}


def norm_faults(copy: LocalCopy) -> Iterator[Simulation]:
    """Faults of layers that normalise queries or keys."""
    sites = copy.sites.values()
    if not any(_norms(site, "qk") for site in sites):
        return
    for words, sides in SIDES.items():
        name = f"the norm of {words} is missing"
        yield Simulation(("SPE114",), name, as_given, of=any_layer, hooks=_without(sides))
    if any(site.layout is not None and _gains(site) for site in sites):
        yield Simulation(("SPE113",), "queries and keys are normalised after their rotation", _after)


def _norms(site: AttentionSite, sides: str) -> list[nn.Module]:
    """The norms of a layer's queries and keys."""
    return [
        child
        for name, child in site.module.named_children()
        if "Norm" in type(child).__name__ and name.startswith(tuple(f"{side}_" for side in sides))
    ]


def _without(sides: str) -> SimulatedHooks:
    """Norms return what they are given."""

    def hooks(x: float, copy: LocalCopy, layers: Sequence[int]) -> Iterator[tuple[nn.Module, ForwardHook]]:
        for site in copy.sites.values():
            if not layers or site.layer in layers:
                yield from ((norm, lambda module, given, out: given[0]) for norm in _norms(site, sides))

    return hooks


def _gains(site: AttentionSite) -> dict[str, Tensor]:
    """By how much the norms of queries and keys multiply each coordinate, where they are of the RMS."""
    found: dict[str, Tensor] = {}
    for side in "qk":
        for norm in _norms(site, side):
            weight: Any = getattr(norm, "weight", None)
            if "RMS" in type(norm).__name__ and weight is not None:
                with torch.no_grad():
                    found[side] = norm(torch.ones_like(weight)[None])[0].float()
    return found


def _after(x: float, site: AttentionSite, given: Given) -> Given:
    """Rotate what is not yet multiplied by the norm's weights, and multiply then."""
    gains = {
        side: gain.reshape(1, -1, 1, getattr(given, side).shape[-1]) for side, gain in _gains(site).items()
    }
    plain = unrotated(given, site)
    bare = replace(plain, **{side: getattr(plain, side) / gain for side, gain in gains.items()})
    turned = both_turned(bare, site, places(given) * site.frequencies.to(given.q.device))
    return replace(
        turned, **{side: (getattr(turned, side) * gain).to(given.q.dtype) for side, gain in gains.items()}
    )
