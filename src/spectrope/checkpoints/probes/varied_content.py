"""Outputs of attention layers that read another vector at every place, however a model is run."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from spectrope.checkpoints.adapters import (
    after,
    before,
    idle_feed_forwards,
    idle_head,
    states_of,
    with_all_states,
)
from spectrope.core import UnsupportedError

Outputs = dict[str, list[Float[Tensor, "b t c"]]]


@torch.no_grad()
def varied_outputs(
    model: nn.Module,
    calls_of: Mapping[str, int],
    run: Callable[[], Any],
    places: Int[Tensor, "b n"],
    vectors: Callable[[int], Float[Tensor, "places c"]],
) -> Outputs:
    """Run a model in some way, with a vector per place in the place of every attention layer's input.

    Args:
        model: The whole model, in evaluation mode.
        calls_of: Of its attention modules, by dotted name: how often each is called in one forward pass.
        run: Runs the model, in one pass or several over consecutive slots.
        places: The place of the token in each slot of each row.
        vectors: The vectors of all places, of a given width.

    Returns:
        What each module puts out, for each of its calls in one pass; modules are left out that take their
        input in another layout, or do not read every slot once.
    """
    rows, slots = places.shape
    done, lost = Counter[tuple[str, int]](), set[str]()
    pieces: dict[tuple[str, int], list[Tensor]] = {}
    made = Counter[str]()

    def replace(name: str, args: Any, given: dict[str, Any]) -> Any:
        key = (name, made[name] % calls_of[name])
        made[name] += 1
        try:
            states = states_of(args, given)
        except UnsupportedError:
            lost.add(name)
            return None
        start = done[key]
        stop = start + states.shape[1]
        if states.ndim != 3 or len(states) != rows or stop > slots:
            lost.add(name)
            return None
        done[key] = stop
        content = vectors(states.shape[2]).to(states)[places[:, start:stop].to(states.device)]
        return with_all_states(args, given, content)

    def receive(name: str, output: Any) -> None:
        if name in lost:
            return
        key = (name, (made[name] - 1) % calls_of[name])
        first = output[0] if isinstance(output, tuple | list) else output
        length = done[key] - sum(one.shape[1] for one in pieces.get(key, ()))
        if not isinstance(first, Tensor) or first.ndim != 3 or first.shape[:2] != (rows, length):
            lost.add(name)
            return
        pieces.setdefault(key, []).append(first.clone())

    with (
        idle_feed_forwards(model, [*calls_of]),
        idle_head(model),
        before(model, calls_of, replace),
        after(model, calls_of, receive),
    ):
        run()
    read = {name for name, _ in pieces} - lost
    return {
        name: [torch.cat(pieces[name, nth], 1) for nth in range(calls)]
        for name, calls in calls_of.items()
        if name in read and all((name, nth) in pieces for nth in range(calls))
    }
