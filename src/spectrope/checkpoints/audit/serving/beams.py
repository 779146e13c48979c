"""Beam search: rows of a cache that are exchanged before tokens are decoded behind them."""

from typing import Any

import torch

from spectrope.checkpoints.adapters import Inputs
from spectrope.checkpoints.audit.compare import Discrepancy
from spectrope.checkpoints.audit.serving.content import Text, other_outputs
from spectrope.checkpoints.audit.serving.kernels import Refused
from spectrope.checkpoints.audit.serving.model import ServedModel

BEAMS = (1, 2, 0)  # The row that each row goes on with.
EXCHANGED = "decoded behind a cache whose rows were exchanged"


def beams(served: ServedModel) -> list[Discrepancy]:
    """A prompt in three rows, whose cache is then rearranged as by beam search, and tokens behind it."""
    ids, prompt = Inputs(len(BEAMS), served.tokens).of(served.model)["input_ids"], served.prompt
    if prompt == served.tokens:
        raise Refused("so short a text leaves no token to decode")
    order = torch.tensor(BEAMS, device=ids.device)

    def between(stop: int, cache: Any) -> Any:
        return _rearranged(served.model, cache, order) if stop == prompt else cache

    def run() -> None:
        served.in_pieces(ids, range(prompt, served.tokens + 1), between=between)

    before = [Text(row, slice(prompt), number=row) for row in range(len(BEAMS))]
    behind = slice(prompt, None)
    after = [Text(row, behind, EXCHANGED, of, prompt) for row, of in enumerate(BEAMS)]
    return other_outputs(served, run, *before, *after, required=True)


def _rearranged(model: Any, cache: Any, order: torch.Tensor) -> Any:
    """A cache with its rows in that order, as the library's beam search makes it.

    Raises:
        Refused: If there is no way to it.
    """
    if hasattr(model, "_reorder_cache"):
        return model._reorder_cache(cache, order)
    if not hasattr(cache, "reorder_cache"):
        raise Refused("it returns no cache whose rows can be exchanged")
    cache.reorder_cache(order)
    return cache
