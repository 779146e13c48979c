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
    order = torch.tensor(BEAMS, device=ids.device)

    def run() -> None:
        for stop, cache in served.in_pieces(ids, range(prompt, served.tokens + 1)):
            if stop == prompt:
                _rearrange(cache, order)

    before = [Text(row, slice(prompt), number=row) for row in range(len(BEAMS))]
    behind = slice(prompt, served.tokens)
    after = [Text(row, behind, EXCHANGED, of, prompt) for row, of in enumerate(BEAMS)]
    return other_outputs(served, run, *before, *after)


def _rearrange(cache: Any, order: torch.Tensor) -> None:
    if not hasattr(cache, "reorder_cache"):
        raise Refused("its cache does not exchange rows")
    cache.reorder_cache(order)
