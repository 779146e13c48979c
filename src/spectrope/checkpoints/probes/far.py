"""Measure kernels at selected positions far beyond an audit's length, with few tokens."""

import inspect
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor, nn

from spectrope.checkpoints.adapters import Call
from spectrope.checkpoints.adapters.claimed_cache import cache_of
from spectrope.checkpoints.adapters.interface import uses_interface
from spectrope.checkpoints.probes.constant_content import LayerKernel, constant_content

MOST = 96  # Tokens of a pass.
AROUND = 2  # Tokens on either side of the end of a window.
DEEPEST = 16384  # Keys behind which the end of a window is looked at.
WHOLE = 8192  # Tokens of a pass over all positions.
LOGITS = 2**25  # Attention logits of such a pass, where a model computes them.


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
    model: nn.Module, modules: list[str], positions: Int[Tensor, "*axes t"], seed: int
) -> dict[str, LayerKernel]:
    """Kernels of each layer, by module, for constant content in a few tokens at these positions.

    Args:
        model: A Hugging Face model that takes positions, in evaluation mode.
        modules: Dotted names of its attention modules.
        positions: Of the tokens, along each axis if positions have several.
        seed: Of the contents.
    """
    kernels: dict[str, LayerKernel] = {}
    ids = positions[..., None, :].expand(*positions.shape[:-1], 2, -1).to(next(model.parameters()).device)

    def receive(kernel: LayerKernel) -> None:
        kernels[kernel.call.module] = kernel

    constant_content(model, modules, positions.shape[-1], receive, seed=seed, given={"position_ids": ids})
    return kernels


def whole_length(model: nn.Module, stop: int) -> int:
    """Tokens of a pass over all positions below `stop` that takes little memory.

    Models that reach their kernel through the library's attention interface run without attention.
    """
    if uses_interface(model):
        return min(stop, WHOLE)
    config: Any = model.config
    heads = int(getattr(config.get_text_config(), "num_attention_heads", None) or 1)
    return min(stop, WHOLE, math.isqrt(LOGITS // heads))


def whole_kernels(
    model: nn.Module, modules: list[str], positions: Sequence[int], length: int, seed: int
) -> dict[str, LayerKernel]:
    """Kernels of each layer, by module, for constant content at all positions, of which some are kept.

    Args:
        model: A Hugging Face model, in evaluation mode; it need not take positions.
        modules: Dotted names of its attention modules.
        positions: Of the queries and keys that are kept.
        length: Tokens of the pass.
        seed: Of the content.
    """
    kernels: dict[str, LayerKernel] = {}
    at = list(positions)

    def receive(kernel: LayerKernel) -> None:
        call = kernel.call
        q, k, allowed = call.q[..., at, :], call.k[..., at, :], call.allowed[..., at, :][..., at]
        call = Call(call.module, q, k, None, allowed, call.scale)
        kernels[call.module] = replace(kernel, call=call)

    constant_content(model, modules, length, receive, contents=1, seed=seed)
    return kernels


def masks_behind(
    model: nn.Module, modules: list[str], past: int, seed: int, tokens: int = 2 * AROUND
) -> dict[str, LayerKernel]:
    """Kernels of each layer, by module, of a few tokens after a cache that represents all earlier ones.

    Args:
        model: In evaluation mode.
        modules: Dotted names of its attention modules.
        past: Tokens that the cache represents, by zeros.
        seed: Names the vectors.
        tokens: How many follow; the attention function is also run on random inputs where it is one, for
            which there are kernels of their own.
    """
    kernels: dict[str, LayerKernel] = {}

    def receive(kernel: LayerKernel) -> None:
        kernels[kernel.call.module] = kernel

    given = {"past_key_values": cache_of(past)}
    constant_content(
        model, modules, tokens, receive, seed=seed, exercised=modules if tokens == 1 else (), given=given
    )
    return kernels
