"""Chunked prefill: a prompt in several passes, each behind the cache of those before it."""

import contextlib
from dataclasses import replace

from spectrope.checkpoints.adapters import Inputs
from spectrope.checkpoints.audit.compare import Discrepancy
from spectrope.checkpoints.audit.serving.content import Text, other_outputs
from spectrope.checkpoints.audit.serving.kernels import Refused
from spectrope.checkpoints.audit.serving.model import ServedModel

BARE = "given tokens and a cache alone, without positions or a mask"
SHORT_PROMPT = 12  # Tokens of a first chunk.
ANSWER, DRAFT = 2, 3  # Single tokens behind it, and tokens of a draft that is verified at once.
BLOCK = 32  # A chunk begins there, with a block or page of a kernel.


def chunked(served: ServedModel) -> list[Discrepancy]:
    """All tokens in chunks of unequal length, each behind the cache of those before it.

    Two single tokens follow the first chunk, as an answer follows the first turn of a conversation, and three
    at once, as where a draft is verified.
    """
    findings = _in_chunks(served, SHORT_PROMPT)
    if not findings:
        with contextlib.suppress(Refused):  # Some models ask for positions or masks.
            findings = [replace(one, note=BARE) for one in _in_chunks(served, 1, bare=True)]
    return findings


def takes_chunks(served: ServedModel) -> bool:
    """Whether the forward pass takes and returns a cache."""
    return {"past_key_values", "use_cache"} <= served.arguments


def _in_chunks(served: ServedModel, first: int, *, bare: bool = False) -> list[Discrepancy]:
    """What differs in chunks, of which the first has so many tokens.

    Args:
        served: The model.
        first: Tokens of the first chunk.
        bare: Whether the model is given tokens and a cache alone, and without positions or a mask.
    """
    ids, prompt = Inputs(1, served.tokens).of(served.model)["input_ids"], served.prompt
    turn = (*range(first, first + 1 + ANSWER), first + ANSWER + DRAFT)
    ends = sorted({*(min(end, prompt) for end in (*turn, BLOCK)), prompt, served.tokens})

    def run() -> None:
        served.in_pieces(ids, ends, bare=bare)

    return served.consecutive(served.served(run)) or other_outputs(served, run, Text(0, slice(None)))
