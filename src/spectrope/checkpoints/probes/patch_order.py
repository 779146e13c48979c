"""Which patch each token of a vision tower is, found by pictures of a pattern that number the patches."""

import contextlib
import math
from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from spectrope.checkpoints.adapters import before, idle_feed_forwards
from spectrope.checkpoints.adapters.towers import Tower
from spectrope.checkpoints.probes.constant_token import blocks_without

NO_PATCH, SEVERAL = -1, -2
FACTORS = (1.0, -1.0)
APART = 1e-2  # Share of the distance between both factors' states by which a state may be off one of them.


@torch.no_grad()
def patches_entering(tower: Tower, modules: list[str]) -> dict[str, Int[Tensor, " t"]]:
    """Number of the patch that each token is, row by row, as it enters each attention module.

    Each picture shows one binary digit of the numbers by the sign of a pattern. Attention modules hand on
    what enters them, and feed-forward layers nothing, so that a state depends on one patch alone, however
    deep it lies.

    Args:
        tower: In evaluation mode.
        modules: Dotted names of its attention modules.

    Returns:
        Numbers by module; `NO_PATCH` for tokens that no patch changes, `SEVERAL` for those that depend on
        more than one.
    """
    rows, columns = tower.grid
    numbers = torch.arange(rows * columns).view(rows, columns)
    one, other = (_states(tower, modules, numbers * 0 + digit) for digit in (0, 1))
    digits = range(math.ceil(math.log2(numbers.numel())))
    pictures = [_states(tower, modules, numbers >> digit & 1) for digit in digits]
    return {name: _numbers(one[name], other[name], [states[name] for states in pictures]) for name in one}


def _states(tower: Tower, modules: list[str], digits: Int[Tensor, "r c"]) -> dict[str, Float[Tensor, "_ _"]]:
    """What enters each attention module for a picture whose patches have a sign for 0 and one for 1."""
    factors = torch.where(digits == 0, *FACTORS)
    entered: dict[str, Tensor] = {}

    def enter(name: str, args: Any, given: dict[str, Any]) -> None:
        entered[name] = _given(args, given).flatten(0, -2).double().cpu()

    model = tower.module
    handing_on = [*modules, *blocks_without(model, modules)]
    with (
        idle_feed_forwards(model, modules),
        before(model, modules, enter),
        _handing_on(model, handing_on),
    ):
        model(**tower.inputs(factors))
    return entered


def _given(args: tuple[Any, ...], given: dict[str, Any]) -> Tensor:
    return given["hidden_states"] if "hidden_states" in given else args[0]


@contextlib.contextmanager
def _handing_on(model: nn.Module, names: list[str]) -> Iterator[None]:
    """Modules whose output is their input, where these have one shape."""

    def hand_on(_: nn.Module, args: Any, given: dict[str, Any], output: Any) -> Any:
        states, first = _given(args, given), output[0] if isinstance(output, tuple) else output
        if first.shape != states.shape:
            return output
        return (states, *output[1:]) if isinstance(output, tuple) else states

    held = [model.get_submodule(name).register_forward_hook(hand_on, with_kwargs=True) for name in names]
    try:
        yield
    finally:
        for handle in held:
            handle.remove()


def _numbers(
    one: Float[Tensor, "t c"], other: Float[Tensor, "t c"], pictures: list[Float[Tensor, "t c"]]
) -> Int[Tensor, " t"]:
    """The numbers whose digits states show."""
    apart = (other - one).norm(dim=1)
    numbers = torch.zeros(len(one), dtype=torch.long)
    several = torch.zeros(len(one), dtype=torch.bool)
    for digit, states in enumerate(pictures):
        off = torch.stack([(states - one).norm(dim=1), (states - other).norm(dim=1)])
        numbers += off.argmin(0) << digit
        several |= off.amin(0) > APART * apart
    numbers[several] = SEVERAL
    numbers[apart == 0] = NO_PATCH
    return numbers
