"""Faults of what happens to logits between the dot product and the softmax."""

from collections.abc import Iterator
from dataclasses import replace

import torch

from spectrope.checkpoints.adapters.interface import SINKS
from spectrope.checkpoints.adapters.substitute import Given
from spectrope.checkpoints.parity.faults.base import Simulation, any_layer, grid
from spectrope.checkpoints.parity.sites import AttentionSite, LocalCopy, places

GAINS = tuple(x for x in grid(0.25, 4.0, 25) if abs(x - 1) > 1e-6)
CAPS = grid(0.5, 100.0, 16)
SINK_LOGITS = tuple(float(x) for x in range(-4, 9))
GROWTHS = grid(0.01, 1.0, 9)
FLOORS = (1.0, 4.0, 8.0, 16.0, 64.0)


def logit_faults(copy: LocalCopy) -> Iterator[Simulation]:
    """Faults of scale, cap, sinks and temperature."""
    sites = copy.sites.values()
    whole = all(site.layout is not None and _width(site) == site.layout.width for site in sites)
    factor = "attention factor {x:.5g} (logits of rotated coordinates times its square)"
    if whole:
        codes, name = ("SPE103", "SPE404"), "attention factor {x:.5g} (logits times its square)"
        yield Simulation(codes, name, _scaled, GAINS, "logarithmic", any_layer)
    else:
        yield Simulation(("SPE103",), factor, _gained, GAINS, "logarithmic")
        name = "attention scale times the square of {x:.5g}"
        yield Simulation(("SPE404",), name, _scaled, GAINS, "logarithmic", any_layer)
    for floor in FLOORS:
        name = f"queries grow by {{x:.4g}} log(1 + position // {floor:.0f})"
        yield Simulation(("SPE403",), name, _growing(floor), GROWTHS, "logarithmic", any_layer)
    yield Simulation(("SPE405",), "cap of logits {x:.4g}", _capped, CAPS, "logarithmic", any_layer)
    yield Simulation(
        ("SPE406",), "a sink of logit {x:.4g} in every head", _sunk, SINK_LOGITS, "linear", any_layer
    )


def _width(site: AttentionSite) -> int:
    """Width of a head."""
    return int(getattr(site.module, "head_dim", 0) or 0)


def _gained(x: float, site: AttentionSite, given: Given) -> Given:
    assert site.layout is not None
    q = given.q.clone()
    q[..., site.layout.start : site.layout.start + site.layout.width] *= x**2
    return replace(given, q=q)


def _scaled(x: float, site: AttentionSite, given: Given) -> Given:
    return replace(given, q=given.q * x**2)


def _growing(floor: float):
    def change(x: float, site: AttentionSite, given: Given) -> Given:
        growth = 1 + x * torch.log1p(places(given) // floor)
        return replace(given, q=given.q * growth.to(given.q))

    return change


def _capped(x: float, site: AttentionSite, given: Given) -> Given:
    return replace(given, options=given.options | {"softcap": x}, plain=True)


def _sunk(x: float, site: AttentionSite, given: Given) -> Given:
    sinks = torch.full((given.q.shape[1],), x, device=given.q.device)
    return replace(given, options=given.options | {SINKS[0]: sinks}, plain=True)
