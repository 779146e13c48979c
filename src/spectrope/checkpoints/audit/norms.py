"""Norms of queries and keys that a layer does not apply, and what weights make of both after a rotation."""

import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from spectrope.checkpoints.adapters import FAILURES
from spectrope.checkpoints.audit.compare import Discrepancy
from spectrope.checkpoints.probes.constant_content import LayerKernel

VANISHING = 1e-3  # Share of its largest value below which a learned factor leaves nothing to read.
ALIKE = 1e-3  # Largest departure of a norm's output that is left to rounding, relative to its largest value.
OF_SIDES = re.compile(r"^(q|k|qk|query|key)_?(layer)?_?(norm|ln)$")


def declared_norms(model: nn.Module) -> Mapping[str, str]:
    """Dotted names of the norms of queries and keys that the model's class builds, and their classes.

    The class is built anew without weights; where it cannot be, the model's own norms are those expected.
    """
    built = model
    if hasattr(model, "config_class"):
        try:
            with torch.device("meta"), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                built = type(model)(model.config)  # pyright: ignore[reportCallIssue]
        except (ImportError, *FAILURES):  # a kernel that this machine lacks, or fields edited since
            built = model
    named = ((name, type(module).__name__) for name, module in built.named_modules())
    return {name: kind for name, kind in named if OF_SIDES.search(name.rpartition(".")[2])}


def norm_findings(
    kernel: LayerKernel, model: nn.Module, declared: Mapping[str, str], noise: float
) -> Iterator[Discrepancy]:
    """Norms of one layer that are missing, are of another class, or did not run before its kernel."""
    present = {name: type(module).__name__ for name, module in model.named_modules()}
    for name, kind in declared.items():
        part = name.rpartition(".")[2]
        if not name.startswith(f"{kernel.call.module}."):
            continue
        side = "queries and keys" if "qk" in part else "queries" if part.startswith("q") else "keys"
        if present.get(name) != kind:
            yield Discrepancy(f"norm of {side}", kind, present.get(name, "none"), f"{part} is another module")
        elif name not in kernel.ran:
            yield Discrepancy(f"norm of {side}", kind, "none", f"{part} is not applied")
        elif wrong := _departure(model.get_submodule(name), kernel.ran[name], kernel.taken.get(name), noise):
            yield Discrepancy(f"norm of {side}", kind, wrong, f"{part} puts them out")


def _departure(
    norm: nn.Module, out: Float[Tensor, "n d"], taken: Float[Tensor, "n d"] | None, noise: float
) -> str:
    """What a norm puts out instead of its input, normalised and weighted; "" if it is that."""
    weight, bias = (getattr(norm, name, None) for name in ("weight", "bias"))
    if taken is None or not isinstance(weight, Tensor) or weight.shape != out.shape[-1:]:
        return ""
    w = weight.detach().cpu().double()
    shift = 0.0 if bias is None else bias.detach().cpu().double()
    forms = [*_normalised(taken, _epsilon(norm))]

    def is_close(x: Float[Tensor, "n d"]) -> bool:
        return bool((x - out).abs().max() <= (ALIKE + 8 * noise) * out.abs().max())

    if any(is_close(form * scale + shift) for form in forms for scale in (w, 1 + w)):
        return ""
    if any(is_close(form) for form in forms):
        return "normalised vectors without its weights"
    return (
        "its input unchanged"
        if is_close(taken)
        else "neither its input nor its normalised and weighted input"
    )


def _normalised(x: Float[Tensor, "n d"], epsilon: float) -> Iterator[Float[Tensor, "n d"]]:
    """Vectors over their root mean square, and less their mean over their standard deviation."""
    for centred in (x, x - x.mean(-1, keepdim=True)):
        yield centred / (centred.square().mean(-1, keepdim=True) + epsilon).sqrt()


def _epsilon(norm: nn.Module) -> float:
    """What a norm adds to the mean square."""
    known = (getattr(norm, name, None) for name in ("eps", "variance_epsilon", "epsilon"))
    return float(next((value for value in known if value is not None), 0.0))


def freed_of_norms(kernel: LayerKernel, model: nn.Module) -> LayerKernel:
    """A kernel without the weights of the norms after its rotation, under which pairs keep no norm."""
    weights: list[Any] = [getattr(model.get_submodule(name), "weight", None) for name in kernel.norms_after]
    if len(weights) != 2 or not all(isinstance(one, Tensor) for one in weights):
        return kernel
    call = kernel.call
    if any(one.shape != call.q.shape[-1:] or not bool((one != 0).all()) for one in weights):
        return kernel
    q, k = (x / one.detach().to(x) for x, one in zip((call.q, call.k), weights, strict=True))
    return replace(kernel, call=replace(call, q=q, k=k))


def freed_of_scaling(kernel: LayerKernel, model: nn.Module, positions: Sequence[int]) -> LayerKernel:
    r"""A kernel without the learned factor on its queries, :math:`a_h \log(p + 1) + b_h` in head h.

    Args:
        kernel: Of a layer.
        model: Whose attention has that factor, as Mistral Large 4's has, or not.
        positions: Of the queries.

    Returns:
        The kernel as it is where the factor vanishes at one of them.
    """
    learned: Any = getattr(model.get_submodule(kernel.call.module), "softmax_scaling", None)
    scale, bias = (getattr(learned, name, None) for name in ("scale", "bias"))
    q = kernel.call.q
    if not isinstance(scale, Tensor) or not isinstance(bias, Tensor) or scale.shape != q.shape[1:2]:
        return kernel
    a, b = (x.detach().cpu().double()[:, None] for x in (scale, bias))
    factor = a * torch.tensor(positions, dtype=torch.float64).log1p() + b
    if bool((factor.abs() < VANISHING * factor.abs().amax(1, keepdim=True)).any()):
        return kernel
    return replace(kernel, call=replace(kernel.call, q=(q.double() / factor[..., None]).to(q)))
