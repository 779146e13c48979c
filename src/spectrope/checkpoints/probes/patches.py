"""Probe a vision tower with the same vector in place of every patch: what still varies is due to position."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from spectrope.checkpoints.adapters import Call, after, before, idle_feed_forwards, recorded
from spectrope.checkpoints.adapters.towers import Tower
from spectrope.checkpoints.probes.constant_content import VARIES
from spectrope.checkpoints.probes.exercise import Exercise, exercise
from spectrope.core import UnsupportedError, torch_stream

VARYING = 1e-4  # Share of the energy of states from which they are said to vary over patches.


@dataclass(frozen=True, eq=False)
class PatchKernel:
    """What one layer of a tower applies to content that is the same in every patch.

    Args:
        call: The first call of the attention function, of the first content.
        q: Queries of all tokens, as the function received them; the batch holds the contents.
        k: Keys likewise.
        windows: Tokens of each call, where the layer attends to parts of the picture in turn.
        sources: Outputs of the layer's inner modules at the first token, where they do not depend on it; of
            each window, where windows are rows of the batch.
        exercise: What the attention function makes of random inputs, where it was run.
    """

    call: Call
    q: Float[Tensor, "b h t d"]
    k: Float[Tensor, "b g t d"]
    windows: tuple[int, ...]
    sources: list[Float[Tensor, "b _"]]
    exercise: Exercise | None


@torch.no_grad()
def attending_in(tower: Tower) -> tuple[list[str], bool]:
    """Dotted names of the modules of a tower that attend, in the order in which they run.

    Returns:
        The names, and whether what enters the first varies over the patches of a picture of one colour.

    Raises:
        UnsupportedError: If there are none.
    """
    calls: list[str] = []
    entered: dict[str, Tensor] = {}

    def enter(name: str, args: Any, given: dict[str, Any]) -> None:
        states = given["hidden_states"] if "hidden_states" in given else args[0] if args else None
        if isinstance(states, Tensor):
            entered[name] = states.flatten(0, -2)

    model = tower.module
    with (
        before(model, dict(model.named_modules()), enter),
        recorded(model, lambda call: calls.append(call.module)),
    ):
        model(**tower.inputs())
    if not calls:
        raise UnsupportedError(f"{type(model).__name__} shows no attention kernel.")
    tokens, n_patches = entered[calls[0]], math.prod(tower.grid)
    patches = (tokens[:n_patches] if tower.form.of_one_size else tokens[-n_patches:]).double()
    variation = (patches - patches.mean(0)).square().sum() / patches.square().sum()
    return list(dict.fromkeys(calls)), variation.item() > VARYING


@torch.no_grad()
def constant_patches(
    tower: Tower, modules: list[str], sink: Callable[[PatchKernel], None], contents: int = 2, seed: int = 0
) -> None:
    """Run a tower with random constant vectors in place of every attention layer's input.

    Args:
        tower: In evaluation mode.
        modules: Dotted names of its attention modules.
        sink: Receives the kernels, layer by layer.
        contents: How many random vectors; the tower runs once with each.
        seed: Of the vectors.
    """
    runs = [_run(tower, modules, seed + content) for content in range(contents)]
    for name in modules:
        calls = [calls[name] for calls, _ in runs]
        heard = [sources[name] for _, sources in runs]
        shared = [torch.cat(one) for one in zip(*heard, strict=True) if len({x.shape for x in one}) == 1]
        q, k = (
            torch.cat([torch.cat([getattr(call, side) for call in parts], 2) for parts in calls])
            for side in ("q", "k")
        )
        first = calls[0]
        windows = tuple(call.q.shape[2] for call in first)
        sink(PatchKernel(first[0].cpu(), q.cpu(), k.cpu(), windows, shared, exercise(first[0], seed)))


def _run(
    tower: Tower, modules: list[str], seed: int
) -> tuple[dict[str, list[Call]], dict[str, list[Tensor]]]:
    """Calls and outputs of inner modules, by attention module."""
    model, inputs = tower.module, tower.inputs()
    calls: dict[str, list[Call]] = {name: [] for name in modules}
    sources: dict[str, list[Tensor]] = {name: [] for name in modules}
    inner = {
        f"{name}.{part}": name
        for name in modules
        for part, _ in model.get_submodule(name).named_modules()
        if part
    }
    rows, tokens = 1, 0

    def enter(name: str, args: Any, given: dict[str, Any]) -> Any:
        nonlocal rows, tokens
        states = given["hidden_states"] if "hidden_states" in given else args[0]
        rows = len(states) if states.ndim > 2 else 1
        tokens = states[..., 0].numel() // rows
        vector = torch.randn(states.shape[-1], generator=torch_stream(seed, "content", name))
        constant = vector.to(states).expand_as(states).contiguous()
        if "hidden_states" in given:
            return args, given | {"hidden_states": constant}
        return (constant, *args[1:]), given

    def note(part: str, output: Any) -> None:
        first = _first_token(output, rows, tokens)
        if first is not None:
            sources[inner[part]].append(first)

    def receive(call: Call) -> None:
        calls[call.module].append(call)

    with (
        idle_feed_forwards(model, modules),
        before(model, modules, enter),
        after(model, inner, note),
        recorded(model, receive),
    ):
        model(**inputs)
    return calls, sources


def _first_token(output: Any, rows: int, tokens: int) -> Float[Tensor, "b _"] | None:
    """Output of a module at the first token of each row; None if it varies over tokens or holds none."""
    if isinstance(output, Tensor) and output.ndim == 4 and math.prod(output.shape[1:3]) == tokens:
        output = output.flatten(1, 2)  # Rows and columns of a window.
    if not isinstance(output, Tensor) or tokens not in output.shape:
        return None
    axis = output.shape.index(tokens)
    first = output.narrow(axis, 0, 1)
    if bool((output - first).abs().max() > VARIES * first.abs().max()):
        return None
    return first.reshape(rows, -1).double().cpu()
