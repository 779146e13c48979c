"""Outputs of attention layers that read another vector at every place, however a model is run."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from spectrope.checkpoints.adapters import (
    after,
    before,
    idle_feed_forwards,
    idle_head,
    layer_name,
    ordinary_token,
    states_of,
    with_all_states,
    with_states,
)
from spectrope.core import UnsupportedError

Outputs = dict[str, list[Float[Tensor, "b t c"]]]


class Varied(NamedTuple):
    """What went through attention layers in one run.

    Args:
        outputs: What each module put out, for each of its calls in one pass; modules are left out that take
            their input in another layout, or do not read every slot once.
        entering: What first layers would have got, if every token was the same.
    """

    outputs: Outputs
    entering: Outputs


@torch.no_grad()
def varied_outputs(
    model: nn.Module,
    calls_of: Mapping[str, int],
    crossing: Collection[str],
    run: Callable[[], Any],
    places: Int[Tensor, "b n"],
    vectors: Callable[[int], Float[Tensor, "places c"]],
) -> Varied:
    """Run a model in some way, with a vector per place in the place of every attention layer's input.

    Args:
        model: The whole model, in evaluation mode.
        calls_of: Of its attention modules, by dotted name: how often each runs in one forward pass.
        crossing: Those of them that attend to an encoder, whose states they keep.
        run: Runs the model, in one pass or several over consecutive slots.
        places: The place of the token in each slot of each row.
        vectors: The vectors of all places, of a given width.
    """
    rows, slots = places.shape
    done, lost = Counter[tuple[str, int]](), set[str]()
    pieces: dict[tuple[str, int], list[Tensor]] = {}
    made = Counter[str]()
    once = {name for name, calls in calls_of.items() if calls == 1} - {*crossing}
    first = {name for name in once if layer_name(name)[1] == 0}
    entered: dict[str, list[Tensor]] = {name: [] for name in first}
    tokens = set[int]()

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
        if name in first:
            entered[name].append(states.clone())
        content = vectors(states.shape[2]).to(states)[places[:, start:stop].to(states.device)]
        return (with_states if name in crossing else with_all_states)(args, given, content)

    def read(_: str, args: Any, named: dict[str, Any]) -> None:
        tokens.update(args[0].unique().tolist() if args else ())

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
        idle_head(model, ordinary_token(model)),
        before(model, _embeddings(model), read),
        before(model, calls_of, replace),
        after(model, calls_of, receive),
    ):
        run()
    outputs = {
        name: [torch.cat(pieces[name, nth], 1) for nth in range(calls)]
        for name, calls in calls_of.items()
        if name not in lost and all((name, nth) in pieces for nth in range(calls))
    }
    alike = len(tokens) == 1
    return Varied(outputs, {name: [torch.cat(entered[name], 1)] for name in first & {*outputs} if alike})


def _embeddings(model: nn.Module) -> list[str]:
    """Dotted name of the table of tokens, if the model has one."""
    find: Any = getattr(model, "get_input_embeddings", lambda: None)
    table = find()
    return [name for name, module in model.named_modules() if module is table][:1]
