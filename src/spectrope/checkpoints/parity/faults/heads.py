"""Faults of single heads, of groups of heads, and of values."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from spectrope.checkpoints.adapters.substitute import Given
from spectrope.checkpoints.parity.faults.base import Simulation, angles_of, any_layer, turned
from spectrope.checkpoints.parity.sites import AttentionSite, LocalCopy


def head_faults(copy: LocalCopy) -> Iterator[Simulation]:
    """Faults of rotations of heads, and of the heads that share keys and values."""
    config: Any = copy.model.config
    text = config.get_text_config()
    heads = int(text.num_attention_heads)
    groups = int(getattr(text, "num_key_value_heads", None) or heads)
    if any(site.layout is not None for site in copy.sites.values()):
        numbers = tuple(map(float, range(heads)))
        yield Simulation(("SPE109",), "queries of head {x:.0f} not rotated", _still_query, numbers, "listed")
        numbers = tuple(map(float, range(groups)))
        yield Simulation(("SPE109",), "keys of head {x:.0f} not rotated", _still_key, numbers, "listed")
        yield Simulation(("SPE112",), "values are rotated", _turned_values)
    if 1 < groups < heads:
        name = "query heads take the groups of keys and values in turn"
        yield Simulation(("SPE407",), name, _in_turn("kv"), of=any_layer)
        name = "query heads take the groups of values in turn"
        yield Simulation(("SPE407",), name, _in_turn("v"), of=any_layer)
        yield Simulation(("SPE407",), "every query head reads group 0", _first_group, of=any_layer)


def _one_still(x: Tensor, head: int, site: AttentionSite, given: Given) -> Tensor:
    assert site.layout is not None
    one = turned(x[:, head : head + 1], site.layout, -angles_of(given, site))
    return torch.cat([x[:, :head], one, x[:, head + 1 :]], 1)


def _still_query(x: float, site: AttentionSite, given: Given) -> Given:
    return replace(given, q=_one_still(given.q, round(x), site, given))


def _still_key(x: float, site: AttentionSite, given: Given) -> Given:
    return replace(given, k=_one_still(given.k, round(x), site, given))


def _turned_values(x: float, site: AttentionSite, given: Given) -> Given:
    assert site.layout is not None
    if given.v.shape[-1] < site.layout.start + site.layout.width:
        return given
    return replace(given, v=turned(given.v, site.layout, angles_of(given, site)))


def _in_turn(sides: str):
    """Head h reads group h mod g in the place of the g groups in order."""

    def change(x: float, site: AttentionSite, given: Given) -> Given:
        times = given.q.shape[1] // given.k.shape[1]
        tiled = {side: getattr(given, side).repeat(1, times, 1, 1) for side in sides}
        grouped = {
            side: getattr(given, side).repeat_interleave(times, 1) for side in "kv" if side not in sides
        }
        return replace(given, **tiled, **grouped, plain=True)

    return change


def _first_group(x: float, site: AttentionSite, given: Given) -> Given:
    k, v = (side[:, :1].expand_as(side) for side in (given.k, given.v))
    return replace(given, k=k, v=v)
