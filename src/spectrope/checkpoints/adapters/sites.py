"""Locate the outputs of heads in a Hugging Face model: projection, module and block."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from spectrope.checkpoints.adapters.hooks import after, before, evaluating
from spectrope.checkpoints.adapters.inputs import POOLS, Inputs, runs_at
from spectrope.checkpoints.adapters.projections import HeadProjection, head_projections
from spectrope.checkpoints.adapters.structure import block_of, layer_name
from spectrope.core import UnsupportedError

Gives = Literal["projected", "heads", "more"]
Role = Literal["", "encoder", "decoder", "cross"]
LENGTH = 4  # Tokens on which heads are looked for.


@dataclass(frozen=True)
class HeadSite:
    """The heads of one attention module.

    Args:
        role: "" in a model with one stack; else "encoder" or "decoder" where it attends to its own sequence,
            and "cross" where a decoder attends to the encoder.
        layer: Number of its layer in its stack.
        module: Dotted name of the module that makes the call of the kernel.
        block: Dotted name of the block that it lies in.
        projection: Dotted name of the output projection, which takes the heads side by side.
        n_heads: Query heads.
        width: Of one head's output.
        gives: What the module returns: the projection of the heads, the heads themselves, or more.
        parts: In how many parts the module puts it out, 0 for a tensor by itself.
        block_parts: The same of the block.
        shares: Whether the block hands tensors on beside the hidden states, such as T5's biases.
    """

    role: Role
    layer: int
    module: str
    block: str
    projection: str
    n_heads: int
    width: int
    gives: Gives
    parts: int
    block_parts: int
    shares: bool

    @property
    def name(self) -> str:
        """Role and number of the layer."""
        return f"{self.role} {self.layer}".strip()

    @property
    def stack(self) -> str:
        """Dotted name of the list that the block stands in."""
        return self.block.rpartition(".")[0]


def head_sites(model: nn.Module, modules: Mapping[str, bool]) -> list[HeadSite]:
    """The heads of every attention module, in the order in which these run.

    The output projection is the first linear map whose input depends on the heads, each in its own columns.

    Args:
        model: A Hugging Face model.
        modules: Dotted names of its attention modules, and whether each attends to another sequence.

    Raises:
        UnsupportedError: If a projection is not found, a module attends several times in a pass, two modules
            go by the same role and number, or blocks are of a form that is not supported.
    """
    config: Any = model.config
    if getattr(config, "model_type", "") in POOLS:
        raise UnsupportedError(f"{type(model).__name__} pools its sequence, so its heads cannot be changed.")
    with evaluating(model), torch.no_grad(), runs_at(LENGTH, model):
        projections = head_projections(model, modules, LENGTH)
        outputs = _outputs(model, [projection.name for projection in projections.values()], [*modules])
    sites = [
        _site(_role(name, elsewhere, config.is_encoder_decoder), name, projections[name], outputs)
        for name, elsewhere in modules.items()
    ]
    if len({site.name for site in sites}) < len(sites):
        raise UnsupportedError("two attention modules share a layer, whose heads cannot be told apart.")
    return sites


def _role(module: str, elsewhere: bool, two_stacks: bool) -> Role:
    if not two_stacks:
        return ""
    if elsewhere:
        return "cross"
    return "decoder" if layer_name(module)[0] == "decoder" else "encoder"


def first_of(output: Any) -> Tensor:
    """A module's main output, by itself or the first of several."""
    return output[0] if isinstance(output, tuple | list) else output


def rest_of(output: Any) -> tuple[Any, ...]:
    """Auxiliary outputs of a module."""
    return tuple(output[1:]) if isinstance(output, tuple | list) else ()


def in_parts(output: Tensor, parts: int, rest: tuple[Any, ...] = ()) -> Any:
    """An output in as many parts as a module puts it out.

    Args:
        output: The main output, with shape (n, t, c).
        parts: How many, 0 for the output by itself.
        rest: The others, nothing if they do not matter; those that hold a row per sequence are repeated.
    """
    if not parts:
        return output
    return (output, *(_fitting(part, len(output)) for part in rest or [None] * (parts - 1)))


def _fitting(part: Any, rows: int) -> Any:
    if not isinstance(part, Tensor) or len(part) in (1, rows):
        return part
    return part.repeat(rows // len(part), *[1] * (part.ndim - 1))


def _outputs(model: nn.Module, projections: list[str], modules: list[str]) -> dict[str, Any]:
    """Outputs of modules and blocks, and under "in" and "out" what goes through projections."""
    outputs: dict[str, Any] = {}

    def enter(name: str, args: Any, given: Any) -> None:
        outputs[f"in {name}"] = args[0]

    names = {*projections, *modules, *map(block_of, modules)}
    with (
        before(model, projections, enter),
        after(model, names, lambda name, out: outputs.update({name: out})),
    ):
        model(**Inputs(batch=1, length=LENGTH).of(model))
    return outputs


def _site(role: Role, module: str, projection: HeadProjection, outputs: dict[str, Any]) -> HeadSite:
    for name in (module, block_of(module)):
        if not _starts_with_a_tensor(outputs.get(name)):
            raise UnsupportedError(
                f"{name} is not called as a module or puts out no tensor, so its heads cannot be changed."
            )
    output, block = outputs[module], outputs[block_of(module)]
    gives: Gives = "more"
    replaced = not isinstance(output, list)  # To which the block of OpenAI's GPT adds lists.
    if replaced and _same(first_of(output), outputs[projection.name]):
        gives = "projected"
    elif replaced and _same(first_of(output), outputs[f"in {projection.name}"]):
        gives = "heads"
    return HeadSite(
        role,
        layer_name(module)[1],
        module,
        block_of(module),
        projection.name,
        projection.n_heads,
        projection.width,
        gives,
        parts=_parts(output),
        block_parts=_parts(block),
        shares=any(isinstance(part, Tensor) for part in rest_of(block)),
    )


def _starts_with_a_tensor(output: Any) -> bool:
    return isinstance(output, Tensor) or (
        isinstance(output, tuple | list) and bool(output) and isinstance(output[0], Tensor)
    )


def _same(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and bool((a == b).all())


def _parts(output: Any) -> int:
    return len(output) if isinstance(output, tuple | list) else 0


def blocks_of(model: nn.Module, sites: list[HeadSite], stack: str) -> Iterator[tuple[str, int]]:
    """Names of all blocks of a stack, also those without attention, and their parts."""
    inside = [site for site in sites if site.stack == stack]
    parts = {site.block: site.block_parts for site in inside}
    for number, _ in model.get_submodule(stack).named_children():
        name = f"{stack}.{number}"
        yield name, parts.get(name, inside[0].block_parts)
