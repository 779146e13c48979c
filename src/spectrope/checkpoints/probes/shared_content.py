"""Probe with the same input to corresponding layers of two models, to compare their queries and keys."""

from contextlib import suppress
from typing import Any

import torch
from torch import nn

from spectrope.checkpoints.adapters import (
    Call,
    Enough,
    Inputs,
    before,
    layer_name,
    recorded,
    states_of,
    with_all_states,
)
from spectrope.checkpoints.probes.constant_content import batch_first, constant_like


@torch.no_grad()
def shared_content(
    model: nn.Module, modules: list[str], length: int = 16, contents: int = 32, seed: int = 0
) -> dict[tuple[str, int], Call]:
    """Kernel calls for random constant vectors that depend on the number of the layer, and not on its name.

    If there are several stacks, they also depend on the name of the layer's stack.

    Args:
        model: A Hugging Face model without its head, in evaluation mode.
        modules: Dotted names of its attention modules.
        length: Positions.
        contents: How many random vectors; each fills one row of the batch.
        seed: Of the vectors.

    Returns:
        The call of each layer, by stack and number, on the CPU.
    """
    calls: dict[tuple[str, int], Call] = {}
    has_stacks = len({layer_name(name)[0] for name in modules}) > 1

    def replace(name: str, args: Any, given: dict[str, Any]) -> Any:
        states = states_of(args, given)
        axes = batch_first(states, contents, length)
        stack, number = layer_name(name)
        content = constant_like(states.permute(axes), seed, f"{stack if has_stacks else ''} {number}")
        return with_all_states(args, given, content.permute(tuple(axes.index(axis) for axis in range(3))))

    def receive(call: Call) -> None:
        if call.module in modules:
            calls[layer_name(call.module)] = call.cpu()
        if len(calls) == len(modules):
            raise Enough

    with before(model, modules, replace), recorded(model, receive), suppress(Enough):
        model(**Inputs(batch=contents, length=length).of(model))
    return calls
