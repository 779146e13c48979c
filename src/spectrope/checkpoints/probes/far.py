"""Measure kernels at selected positions far beyond an audit's length, with few tokens."""

import inspect
from collections.abc import Iterable, Sequence

import torch
from torch import nn

from spectrope.checkpoints.adapters import Call
from spectrope.checkpoints.adapters.claimed_cache import cache_of
from spectrope.checkpoints.probes.constant_content import LayerKernel, constant_content

MOST = 96  # Tokens of a pass.
AROUND = 2  # Tokens on either side of the end of a window.
DEEPEST = 16384  # Keys behind which the end of a window is looked at.


def takes_positions(model: nn.Module) -> bool:
    """Whether a model's forward pass takes the position of each token, in all its stacks."""
    two_stacks = bool(getattr(model.config, "is_encoder_decoder", False))
    return not two_stacks and "position_ids" in inspect.signature(model.forward).parameters


def takes_past(model: nn.Module) -> bool:
    """Whether a model's forward pass takes a cache."""
    return "past_key_values" in inspect.signature(model.forward).parameters


def chosen_positions(boundaries: Iterable[int], start: int, stop: int) -> list[int]:
    """Positions below `stop`: the first few, those around boundaries and powers of two, and the last.

    Args:
        boundaries: Positions at which an encoding may change.
        start: From which on positions are far.
        stop: One more than the last.
    """
    powers = (2**k for k in range(start.bit_length() - 1, stop.bit_length()))
    around = {b + d for b in (*boundaries, *powers, stop) for d in (-1, 0, 1)}
    between = torch.linspace(start, stop - 1, MOST // 4).long().tolist()
    kept = sorted({0, 1, 2, 3} | {p for p in (*around, *between) if 0 <= p < stop})
    return kept if len(kept) <= MOST else [*kept[: MOST // 2], *kept[-MOST // 2 :]]


def far_kernels(
    model: nn.Module, modules: list[str], positions: Sequence[int], seed: int
) -> dict[str, LayerKernel]:
    """What each layer applies to constant content at these positions, by module.

    Args:
        model: A Hugging Face model that takes positions, in evaluation mode.
        modules: Dotted names of its attention modules.
        positions: Of the tokens, ascending from 0.
        seed: Of the contents.
    """
    kernels: dict[str, LayerKernel] = {}
    device = next(model.parameters()).device
    ids = torch.tensor(positions, device=device)[None].expand(2, -1)

    def receive(kernel: LayerKernel) -> None:
        kernels[kernel.call.module] = kernel

    constant_content(model, modules, len(positions), receive, seed=seed, given={"position_ids": ids})
    return kernels


def masks_behind(model: nn.Module, modules: list[str], past: int, seed: int) -> dict[str, Call]:
    """Calls of each layer, by module, with a few tokens after a cache that represents all earlier ones."""
    calls: dict[str, Call] = {}

    def receive(kernel: LayerKernel) -> None:
        calls[kernel.call.module] = kernel.call

    given = {"past_key_values": cache_of(past)}
    constant_content(model, modules, 2 * AROUND, receive, seed=seed, given=given)
    return calls
