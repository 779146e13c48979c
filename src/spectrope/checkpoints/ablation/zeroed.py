"""Silence some heads of a model inside a `with` block."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import nn

from spectrope.checkpoints.adapters import HeadSite, before, evaluating, head_sites
from spectrope.checkpoints.adapters.own import OwnModel
from spectrope.checkpoints.probes.constant_content import attending_modules
from spectrope.core import ConfigError


@contextlib.contextmanager
def zeroed_heads(model: nn.Module, heads: Sequence[tuple[Any, ...]]) -> Iterator[nn.Module]:
    """Context manager that sets the outputs of some heads to zero, before the output projection.

    Args:
        model: A Hugging Face model or an `OwnModel`; its weights are never touched.
        heads: Layer and head of each, counted from 0; before them, in a model with two stacks, the role:
            "encoder", "decoder", or "cross" where a decoder attends to the encoder.

    Raises:
        ConfigError: If the model has no such head.
        UnsupportedError: If its heads cannot be seen.
    """
    with evaluating(model), torch.no_grad():
        sites = {(site.role, site.layer): site for site in head_sites(model, attending_modules(model))}
    columns: dict[str, list[int]] = {}
    for head in heads:
        site, number = _found(sites, head)
        first = number * site.width
        columns.setdefault(site.projection, []).extend(range(first, first + site.width))
    with contextlib.ExitStack() as stack:
        if isinstance(model, OwnModel):
            stack.enter_context(model.visible())
        stack.enter_context(before(model, columns, _zeroing(columns)))
        yield model


def _zeroing(columns: dict[str, list[int]]) -> Callable[[str, Any, dict[str, Any]], Any]:
    def act(name: str, args: Any, given: dict[str, Any]) -> Any:
        changed = args[0].clone()
        changed[..., columns[name]] = 0
        return (changed, *args[1:]), given

    return act


def _found(sites: dict[tuple[Any, int], HeadSite], head: Sequence[Any]) -> tuple[HeadSite, int]:
    """Where a head comes out, and its number."""
    roles = dict.fromkeys(role for role, _ in sites)
    one_stack = roles == {"": None}
    if len(head) != (2 if one_stack else 3):
        form = "(layer, head)" if one_stack else f"(role, layer, head) with a role of {', '.join(roles)}"
        raise ConfigError(f"a head of this model is named {form}; got {head!r}.")
    role, layer, number = head if len(head) == 3 else ("", *head)
    site = sites.get((role, layer))
    if site is None or number not in range(site.n_heads):
        last = max(layer for _, layer in sites)
        n_heads = max(site.n_heads for site in sites.values())
        raise ConfigError(
            f"the model has no head {tuple(head)}; layers are 0 to {last}, heads 0 to {n_heads - 1}."
        )
    return site, number
