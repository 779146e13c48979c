"""Faults of tables of absolute positions, which are added to the embeddings of tokens."""

from collections.abc import Iterator, Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from spectrope.checkpoints.parity.faults.base import ForwardHook, Simulation, any_layer, as_given
from spectrope.checkpoints.parity.sites import LocalCopy

STARTS = tuple(float(x) for x in (*range(-4, 0), *range(1, 5)))


def absolute_faults(copy: LocalCopy) -> Iterator[Simulation]:
    """Faults of models with a table of positions."""
    if not any(_tables(copy)):
        return
    yield Simulation(
        ("SPE401",),
        "no absolute positions are added",
        as_given,
        of=any_layer,
        hooks=_without,
        in_layers=False,
    )
    yield Simulation(
        ("SPE402",), "the first position is {x:+.0f} rows of the table off", as_given, STARTS, "listed",
        any_layer, _shifted, in_layers=False,
    )  # fmt: skip


def _tables(copy: LocalCopy) -> Iterator[nn.Embedding]:
    """Tables of positions: embeddings of something else than tokens, by the names that libraries use."""
    for name, module in copy.model.named_modules():
        last = name.rpartition(".")[2]
        if isinstance(module, nn.Embedding) and ("position" in last or last == "wpe"):
            yield module


def _without(x: float, copy: LocalCopy, layers: Sequence[int]) -> Iterator[tuple[nn.Module, ForwardHook]]:
    for table in _tables(copy):
        yield table, lambda module, given, out: torch.zeros_like(out)


def _shifted(x: float, copy: LocalCopy, layers: Sequence[int]) -> Iterator[tuple[nn.Module, ForwardHook]]:
    def look(module: nn.Module, given: object, out: Float[Tensor, "*b t d"]) -> Tensor:
        table = module.get_parameter("weight")
        same = torch.eq(table, out.flatten(0, -2)[0]).all(-1).nonzero()  # The row of the first position.
        if not len(same):
            return out
        rows = int(same[0]) + round(x) + torch.arange(out.shape[-2], device=out.device)
        return table[rows.clamp(0, len(table) - 1)].expand_as(out)

    for table in _tables(copy):
        yield table, look
