"""Measure what a lock holds of the vectors that embeddings add by position."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from spectrope.checkpoints.adapters import declared_config, layer_name
from spectrope.checkpoints.audit.diff import tolerance
from spectrope.checkpoints.audit.fields import Declaration
from spectrope.checkpoints.audit.records import AbsoluteRecord
from spectrope.checkpoints.audit.sinusoids import declared_sinusoids
from spectrope.checkpoints.lock.records import LockedEmbeddings
from spectrope.core import torch_stream

FIRST = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24)  # Positions that are kept; beyond them, every eighth.


def _is_learned(record: AbsoluteRecord, model: nn.Module) -> bool:
    """Whether the table of a stack has weights, unless its architecture computes them."""
    inner = getattr(model, "base_model", model)
    weights = inner.get_submodule(record.table).parameters() if record.table else iter(())
    if next(weights, None) is None:
        return False
    stack = layer_name(record.block)[0]
    return declared_sinusoids(Declaration(**declared_config(model)).of(stack)) is None


def locked_embeddings(record: AbsoluteRecord, noise: float, model: nn.Module) -> LockedEmbeddings:
    """What a lock keeps of one stack.

    Args:
        record: Of the audit.
        noise: Relative rounding error of the arithmetic.
        model: The model.
    """
    term, places = record.term, kept_places(record)
    kept = (torch.zeros(0, 1) if term is None else term[places]).double()
    return LockedEmbeddings(
        block=record.block,
        table=record.table,
        first_row=record.first_row if record.table else None,
        positions=tuple(places),
        norms=tuple(kept.norm(dim=-1).tolist()),
        along=tuple((kept @ direction(kept.shape[-1])).tolist()),
        tolerance=tolerance(noise),
        learned=_is_learned(record, model),
    )


def direction(width: int) -> Float[Tensor, " d"]:
    """A fixed direction, of length 1, that no order of the coordinates and no sign leaves as it is."""
    drawn = torch.randn(width, generator=torch_stream(0, "lock", "direction"), dtype=torch.float64)
    return drawn / drawn.norm()


def kept_places(record: AbsoluteRecord) -> list[int]:
    """Positions at which a lock keeps the norms of what embeddings add: the first ones, and every eighth."""
    kept = (*FIRST, *range(FIRST[-1] + 8, record.length, 8))
    return [] if record.term is None else [place for place in kept if place < len(record.term)]
