"""Weights that are part of a layer's positional kernel: attention sinks and tables of biases."""

import itertools

import torch
from jaxtyping import Float
from torch import Tensor, nn


def sinks_of(model: nn.Module, module: str) -> tuple[float, ...]:
    """Logits of the attention sinks that a layer has, per head; empty if it has none."""
    own = model.get_submodule(module)
    named = (p for name, p in own.named_parameters(recurse=False) if "sink" in name and p.ndim == 1)
    return next((tuple(p.detach().double().flatten().tolist()) for p in named), ())


def bucket_table(model: nn.Module, module: str, n_buckets: int) -> Float[Tensor, "buckets h"] | None:
    """The table of biases by bucket and head that a layer uses: its own, or the nearest one in its stack.

    Args:
        model: The model without its head.
        module: Dotted name of the layer's attention module.
        n_buckets: Rows of the table.
    """
    tables = {
        name: part.weight
        for name, part in model.named_modules()
        if isinstance(part, nn.Embedding) and len(part.weight) == n_buckets and "relative" in name
    }
    if not tables:
        return None
    nearest = max(tables, key=lambda name: _shared(name, module))
    return tables[nearest].detach().cpu().to(torch.float64)


def _shared(one: str, other: str) -> int:
    """Leading parts that two dotted names share."""
    pairs = zip(one.split("."), other.split("."), strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
