"""Norms of queries and keys that an architecture has and a layer does not apply."""

import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from spectrope.checkpoints.adapters import FAILURES
from spectrope.checkpoints.audit.compare import Discrepancy
from spectrope.checkpoints.probes.constant_content import LayerKernel

ALIKE = 0.05  # Largest relative departure of norms from their mean that is left to the norm's epsilon.
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
        elif wrong := _departure(model.get_submodule(name), kernel.ran[name].double(), ALIKE + 4 * noise):
            yield Discrepancy(f"norm of {side}", kind, wrong, f"{part} puts them out")


def _departure(norm: nn.Module, x: Float[Tensor, "n d"], within: float) -> str:
    """What the vectors that a norm puts out are instead of normalised and weighted; "" if they are that."""
    weight, bias = (getattr(norm, name, None) for name in ("weight", "bias"))
    if not isinstance(weight, Tensor) or weight.shape != x.shape[-1:]:
        return ""
    w = weight.detach().cpu().double()
    centred = x if bias is None else x - bias.detach().cpu().double()
    if any(
        _alike((centred / scale).norm(dim=-1), within) for scale in (w, 1 + w) if bool((scale != 0).all())
    ):
        return ""
    return (
        "normalised vectors without its weights"
        if _alike(x.norm(dim=-1), within)
        else "vectors of several norms"
    )


def _alike(norms: Float[Tensor, " n"], within: float) -> bool:
    return bool((norms - norms.mean()).abs().max() <= within * norms.mean())


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
