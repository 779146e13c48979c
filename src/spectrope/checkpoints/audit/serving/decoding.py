"""Cached decoding: token by token behind a prompt, from a cache that grows or one of fixed size."""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from spectrope.checkpoints.adapters import Inputs
from spectrope.checkpoints.audit.compare import Discrepancy
from spectrope.checkpoints.audit.serving.content import Text, other_outputs
from spectrope.checkpoints.audit.serving.model import ServedModel

STATIC: dict[str, Any] = {"cache_implementation": "static", "disable_compile": True}


def decoded(served: ServedModel, **how: Any) -> list[Discrepancy]:
    """Prompt first, then token by token from the cache, as `generate` does it.

    Behind an encoder, which reads the prompt, a decoder begins with one token.
    """
    ids, steps = Inputs(1, served.prompt).of(served.model)["input_ids"], served.tokens - served.prompt

    def run() -> None:
        served.generate(ids, torch.ones_like(ids), steps, **how)

    received = served.served(run)
    findings = served.consecutive(received) + served.across(received, torch.ones_like(ids))
    return findings or _other_outputs(served, **how)


def _other_outputs(served: ServedModel, **how: Any) -> list[Discrepancy]:
    """What differs in the outputs for varied content, in two rows of which none has padding."""
    ids, steps = Inputs(2, served.prompt).of(served.model)["input_ids"], served.tokens - served.prompt
    read = slice(served.prompt) if served.crossing else slice(None)  # An encoder may fill up what it reads.
    texts = (Text(0, read, "in the first of two rows"), Text(1, read, "in the second of two rows", 1))
    return other_outputs(served, lambda: served.generate(ids, torch.ones_like(ids), steps, **how), *texts)


def decoded_from_static(served: ServedModel) -> list[Discrepancy]:
    """The same from a cache that is allocated in advance, so that it holds keys not yet written."""
    with static_lengths_restored(served.model):
        return decoded(served, **STATIC)


def has_static_cache(served: ServedModel) -> bool:
    """Whether the library lets the model decode from such a cache."""
    return bool(getattr(served.model, "_can_compile_fullgraph", False))


@contextlib.contextmanager
def static_lengths_restored(model: nn.Module) -> Iterator[None]:
    """Leave the length of static caches that the library keeps on a model as it was, present or not."""
    name, missing = "_previous_max_cache_length", object()
    before = getattr(model, name, missing)
    try:
        yield
    finally:
        if before is not missing:
            setattr(model, name, before)
        elif hasattr(model, name):
            delattr(model, name)
