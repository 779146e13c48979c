"""Probe with constant content in every attention layer: any remaining variation of the kernel is due to
position."""

from collections.abc import Callable, Container, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from spectrope.checkpoints.adapters import (
    Call,
    Enough,
    Inputs,
    after,
    before,
    equal_tokens_once,
    idle_feed_forwards,
    recorded,
    runs_at,
    short_length,
    states_of,
    with_all_states,
)
from spectrope.checkpoints.adapters.own import OwnModel
from spectrope.checkpoints.probes.exercise import Exercise, exercise
from spectrope.core import UnsupportedError, torch_stream

ELSEWHERE = ("key_value_states", "encoder_hidden_states")  # Arguments by which a layer attends elsewhere.


SOME = 256  # Vectors of an inner module that are kept.
VARIES = 1e-2  # Share of the largest value by which an output varies over positions beyond rounding.


@dataclass(frozen=True, eq=False)
class LateNorm:
    """A norm that ran before the kernel and whose outputs vary with the position: what it took was encoded.

    Args:
        name: Dotted.
        taken: What it took at every position, with the batch first.
        out: What it put out.
        first: The same at the first position, flattened.
    """

    name: str
    taken: Float[Tensor, "b ..."]
    out: Float[Tensor, "b ..."]
    first: Float[Tensor, "b _"]


@dataclass(frozen=True, eq=False)
class LayerKernel:
    """What one layer's attention applies to content that is the same at every position.

    Args:
        call: Queries, keys, bias and mask as the kernel received them, moved to the CPU; the batch holds the
            contents.
        sources: Outputs of the layer's inner modules at the first position, with shape (b, width), in the
            order in which they ran: among them are the queries and keys before any encoding.
        norms_after: Norms that ran behind its encoding.
        ran: Dotted names of the layer's inner modules that ran before the kernel, and some vectors that they
            put out.
        taken: Vectors that norms among them took, likewise.
        exercise: What the attention function makes of random inputs, where it was run.
        states: What entered the layer at every position.
    """

    call: Call
    sources: list[Float[Tensor, "b _"]]
    norms_after: tuple[LateNorm, ...] = ()
    ran: Mapping[str, Float[Tensor, "_ _"]] = field(default_factory=dict)
    taken: Mapping[str, Float[Tensor, "_ _"]] = field(default_factory=dict)
    exercise: Exercise | None = None
    states: Float[Tensor, "b c"] | None = None


@torch.no_grad()
def attention_modules(model: nn.Module) -> list[str]:
    """Dotted names of the modules that attend to their own sequence, in the order in which they run.

    Raises:
        UnsupportedError: If no attention kernel could be observed.
    """
    return [name for name, elsewhere in attending_modules(model).items() if not elsewhere]


@torch.no_grad()
def attending_modules(model: nn.Module) -> dict[str, bool]:
    """Dotted names of all modules that attend, in the order in which they run, and whether elsewhere.

    Elsewhere is to another sequence, as a decoder attends to an encoder.

    Raises:
        UnsupportedError: If no attention kernel to an own sequence could be observed, or the model does not
            run on tokens alone.
    """
    calls: list[str] = []
    elsewhere: set[str] = set()
    inputs = Inputs(batch=1, length=short_length(model))

    def look(name: str, args: Any, given: dict[str, Any]) -> None:
        crossing = name.rpartition(".")[2] == "encoder_attn"  # of FSMT, whose arguments do not tell
        if crossing or any(given.get(side) is not None for side in ELSEWHERE):
            elsewhere.add(name)

    watched = before(model, dict(model.named_modules()), look)
    recording = recorded(model, lambda call: calls.append(call.module))
    with watched, recording as unread, runs_at(inputs.length, model):
        model(**inputs.of(model))
    if not set(calls) - elsewhere:
        raise UnsupportedError(_lacking(model, unread))
    return {name: name in elsewhere for name in calls}


def _lacking(model: nn.Module, unread: list[str]) -> str:
    """Why nothing can be measured of a model that shows no attention kernel."""
    name = type(model).__name__
    if unread:
        return (
            f"{name} has attention of a form that is not supported yet: the softmax in {unread[0]} is of no "
            "product of queries (batch, heads, queries, width) and keys."
        )
    if isinstance(model, OwnModel):
        return (
            f"{model.name} shows no attention kernel: no softmax of a product of queries and keys was "
            f"computed. If attention is computed by a custom kernel, pass an equivalent forward pass to "
            f"OwnModel as `forwards`."
        )
    return (
        f"{name} has no softmax attention, so there is no attention kernel to audit: its layers mix "
        "positions in another way, as state-space, recurrent, Fourier and hashing models do."
    )


@torch.no_grad()
def constant_content(
    model: nn.Module,
    modules: list[str],
    length: int,
    sink: Callable[[LayerKernel], None],
    contents: int = 2,
    seed: int = 0,
    *,
    exercised: Container[str] = (),
    given: dict[str, Any] | None = None,
) -> tuple[str, ...]:
    """Run the model with random constant vectors in the place of every attention layer's input.

    Args:
        model: A Hugging Face model, in evaluation mode.
        modules: Dotted names of its attention modules.
        length: Positions.
        sink: Receives each layer's kernel as it runs; nothing is kept here.
        contents: How many random vectors; each fills one row of the batch.
        seed: Names the vectors.
        exercised: Modules whose attention functions are also run on random inputs.
        given: Further arguments of the model's forward call.

    Returns:
        Dotted names of modules that attend in a form that is not read.

    Raises:
        UnsupportedError: If a module that attends to short inputs does not at that length.
    """
    sources: dict[str, list[Tensor]] = {name: [] for name in modules}
    norms: dict[str, list[LateNorm]] = {name: [] for name in modules}
    entering: dict[str, Tensor] = {}  # What norms take.
    entered: dict[str, Tensor] = {}
    ran: dict[str, dict[str, Tensor]] = {name: {} for name in modules}
    taken: dict[str, dict[str, Tensor]] = {name: {} for name in modules}
    inner = {
        f"{name}.{part}": name
        for name in modules
        for part, _ in model.get_submodule(name).named_modules()
        if part
    }

    def replace(name: str, args: Any, named: dict[str, Any]) -> Any:
        states = states_of(args, named)
        axes = batch_first(states, contents, length)
        content = constant_like(states.permute(axes), seed, name)
        entered[name] = content[:, 0].clone().cpu()  # Without the memory of the other positions.
        return with_all_states(args, named, content.permute(_back(axes)))

    normalising = {
        part for part in inner if "norm" in f"{part} {type(model.get_submodule(part)).__name__}".lower()
    }

    def take(part: str, args: Any, named: dict[str, Any]) -> None:
        if args and isinstance(args[0], Tensor) and args[0].ndim > 1 and inner[part] in taken:
            taken[inner[part]][part] = _some(args[0])
            entering[part] = args[0].clone()  # Some norms change it in place.

    def note(part: str, output: Any) -> None:
        heard = sources.get(inner[part])
        if heard is None or not isinstance(output, Tensor) or output.ndim < 2:
            return
        ran[inner[part]][part] = _some(output)
        before = _by_row(entering.pop(part, None), contents, length)
        output = _by_row(output, contents, length)
        if output is None:
            return
        first, is_constant = _first_position(output, length)
        if is_constant:
            heard.append(first.clone())  # Some models change it in place.
        elif before is not None:
            norms[inner[part]].append(LateNorm(part, before.cpu(), output.clone().cpu(), first.cpu()))

    def receive(call: Call) -> None:
        if call.module in sources:
            found = [source.cpu() for source in sources.pop(call.module)]
            tried = exercise(call, seed) if call.module in exercised else None
            states = entered.pop(call.module, None)
            outputs, inputs, late = ran.pop(call.module), taken.pop(call.module), norms.pop(call.module)
            sink(LayerKernel(call.cpu(), found, tuple(late), outputs, inputs, tried, states))
        if not sources:
            raise Enough

    with (
        idle_feed_forwards(model, modules),
        equal_tokens_once(model, modules),
        before(model, modules, replace),
        before(model, normalising, take),
        after(model, inner, note),
        recorded(model, receive) as unread,
        suppress(Enough),
    ):
        model(**Inputs(batch=contents, length=length).of(model) | (given or {}))
    if sources:
        raise UnsupportedError(
            f"{type(model).__name__} has attention of a form that is not supported yet: "
            f"{next(iter(sources))} shows its kernel for short inputs, but not at length {length}."
        )
    return tuple(dict.fromkeys([*unread, *_like(model, unread, modules)]))


def _like(model: nn.Module, unread: list[str], modules: list[str]) -> list[str]:
    """Modules of the classes of those that were read in part; the pass may end before their other softmax."""
    partly = {type(model.get_submodule(name)) for name in unread if name in modules}
    return [name for name in modules if type(model.get_submodule(name)) in partly]


def _some(x: Tensor) -> Float[Tensor, "n d"]:
    """Some vectors of a tensor, in double precision on the CPU."""
    return x.flatten(0, -2)[:SOME].double().cpu()


def batch_first(x: Float[Tensor, "_ _ _"], batch: int, length: int) -> tuple[int, int, int]:
    """Axes of a layer's states in the order batch, positions, width.

    Some models put the positions first, others the width before the positions, for convolutions.
    """
    if x.shape[:2] != (batch, length) and x.shape[:2] == (length, batch):
        return (1, 0, 2)
    return (0, 2, 1) if x.shape[1] != length and x.shape[2] == length else (0, 1, 2)


def _back(axes: tuple[int, int, int]) -> tuple[int, int, int]:
    first, second, third = (axes.index(axis) for axis in range(3))
    return first, second, third


def constant_like(x: Float[Tensor, "b t c"], seed: int, name: str) -> Float[Tensor, "b t c"]:
    """One standard normal vector per row of the batch, at every position."""
    vectors = torch.randn(x.shape[0], 1, x.shape[2], generator=torch_stream(seed, "content", name))
    return vectors.to(x).expand_as(x).contiguous()


def _by_row(output: Any, batch: int, length: int) -> Tensor | None:
    """What a module puts out with the batch first; None if it is no vector per row and position."""
    if not isinstance(output, Tensor) or output.ndim < 3 or not output.is_floating_point():
        return None
    if output.shape[:2] == (length, batch):
        return output.transpose(0, 1)
    has_positions = len(output) == batch and length in (output.shape[1], output.shape[2])
    return output if has_positions else None


def _first_position(output: Tensor, length: int) -> tuple[Tensor, bool]:
    """Output of a module at the first position, flattened per row of the batch, and whether all are equal."""
    time = 1 if output.shape[1] == length else 2
    first = output.narrow(time, 0, 1)
    ahead, behind = output.amax(time, keepdim=True) - first, first - output.amin(time, keepdim=True)
    varies = bool(torch.maximum(ahead, behind).max() > VARIES * first.abs().max())
    return first.squeeze(time).flatten(1), not varies  # One that varies comes after the encoding.


def convolves(attention: nn.Module) -> bool:
    """Whether an attention layer mixes neighbouring tokens by a convolution of its own."""
    return any(isinstance(part, nn.Conv1d) and part.kernel_size[0] > 1 for part in attention.modules())
