"""Where a Hugging Face model's heads come out: before which projection, in which module, in which block."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from spectrope.core.errors import UnsupportedError
from spectrope.models.adapters.hooks import after, before, evaluating
from spectrope.models.adapters.inputs import Inputs
from spectrope.models.adapters.record import Call, recorded
from spectrope.models.adapters.structure import block_of

Gives = Literal["projected", "heads", "more"]


@dataclass(frozen=True)
class HeadSite:
    """The heads of one layer.

    Args:
        module: Dotted name of the module that makes the call of the kernel.
        block: Dotted name of the block that it lies in.
        projection: Dotted name of the output projection, which takes the heads side by side.
        n_heads: Query heads.
        width: Of one head's output.
        gives: What the module puts out: the projection of the heads, the heads themselves, or more than that.
        parts: In how many parts the module puts it out, 0 for a tensor by itself.
        block_parts: The same of the block.
    """

    module: str
    block: str
    projection: str
    n_heads: int
    width: int
    gives: Gives
    parts: int
    block_parts: int

    @property
    def stack(self) -> str:
        """Dotted name of the list that the block stands in."""
        return self.block.rpartition(".")[0]


def head_sites(model: nn.Module, modules: list[str]) -> list[HeadSite]:
    """The heads of every layer, in the order in which layers run.

    The output projection is the first linear map that runs after a kernel and whose input holds its heads.

    Args:
        model: A Hugging Face model.
        modules: Dotted names of its attention modules.

    Raises:
        UnsupportedError: If a layer's projection is not found, or two layers share a block.
    """
    with evaluating(model), torch.no_grad():
        found = _projections(model, modules)
        lost = [module for module in modules if module not in found]
        if lost:
            raise UnsupportedError(
                f"no linear map after the heads of {lost[0]} was found, so none can be cut."
            )
        outputs = _outputs(model, [name for name, _, _ in found.values()], modules)
    sites = [_site(module, *found[module], outputs) for module in modules]
    if len({site.block for site in sites}) < len(sites):
        raise UnsupportedError("two attention modules share a block, whose heads cannot be told apart.")
    return sites


def linear_weight(module: nn.Module) -> Float[Tensor, "out in"] | None:
    """The weight of a linear map, as `nn.Linear` keeps it; None for other modules."""
    weight = getattr(module, "weight", None)
    if isinstance(module, nn.Linear):
        return weight
    transposed = type(module).__name__ == "Conv1D" and hasattr(module, "nf")
    return weight.T if transposed and isinstance(weight, Tensor) else None


def first_of(output: Any) -> Tensor:
    """A module's main output, by itself or the first of several."""
    return output[0] if isinstance(output, tuple) else output


def in_parts(output: Tensor, parts: int) -> Any:
    """An output in as many parts as a module puts it out."""
    return (output, *[None] * (parts - 1)) if parts else output


def _projections(model: nn.Module, modules: list[str]) -> dict[str, tuple[str, int, int]]:
    """Name of the projection, heads and their width, by attention module."""
    weights = {name: linear_weight(module) for name, module in model.named_modules()}
    inputs = {name: weight.shape[1] for name, weight in weights.items() if weight is not None}
    found: dict[str, tuple[str, int, int]] = {}
    waiting: list[Call] = []

    def enter(name: str, args: Any, given: Any) -> None:
        if waiting and inputs[name] % waiting[-1].q.shape[1] == 0:
            call = waiting.pop()
            heads = call.q.shape[1]
            found.setdefault(call.module, (name, heads, inputs[name] // heads))

    with before(model, inputs, enter), recorded(model, waiting.append):
        model(**Inputs(batch=1, length=4).of(model))
    return {module: found[module] for module in modules if module in found}


def _outputs(model: nn.Module, projections: list[str], modules: list[str]) -> dict[str, Any]:
    """What modules and blocks put out, and under "in" and "out" what goes through projections."""
    outputs: dict[str, Any] = {}

    def enter(name: str, args: Any, given: Any) -> None:
        outputs[f"in {name}"] = args[0]

    names = {*projections, *modules, *map(block_of, modules)}
    with (
        before(model, projections, enter),
        after(model, names, lambda name, out: outputs.update({name: out})),
    ):
        model(**Inputs(batch=1, length=4).of(model))
    return outputs


def _site(module: str, projection: str, n_heads: int, width: int, outputs: dict[str, Any]) -> HeadSite:
    own, block = outputs[module], outputs[block_of(module)]
    gives: Gives = "more"
    if _same(first_of(own), outputs[projection]):
        gives = "projected"
    elif _same(first_of(own), outputs[f"in {projection}"]):
        gives = "heads"
    return HeadSite(
        module,
        block_of(module),
        projection,
        n_heads,
        width,
        gives,
        parts=_parts(own),
        block_parts=_parts(block),
    )


def _same(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and bool((a == b).all())


def _parts(output: Any) -> int:
    return len(output) if isinstance(output, tuple) else 0


def blocks_of(model: nn.Module, sites: list[HeadSite]) -> Iterator[tuple[str, int]]:
    """Names of all blocks of the stack, also those without attention, and their parts."""
    parts = {site.block: site.block_parts for site in sites}
    stack = sites[0].stack
    for number, _ in model.get_submodule(stack).named_children():
        name = f"{stack}.{number}"
        yield name, parts.get(name, sites[0].block_parts)
