"""Layers that append compressed keys to those of the tokens: their calls with the tokens' keys alone."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from torch import Tensor, nn

from spectrope.checkpoints.adapters.call import Call
from spectrope.checkpoints.adapters.hooks import after
from spectrope.checkpoints.adapters.interface import Sink


def compressing(model: nn.Module) -> list[str]:
    """Dotted names of the attention modules that append compressed keys, as DeepSeek V4's do."""
    return [name for name, module in model.named_modules() if compresses(module)]


def compresses(module: nn.Module) -> bool:
    """Whether an attention module appends compressed keys."""
    return type(getattr(module, "compressor", None)).__name__.endswith("Compressor")


@contextmanager
def of_tokens_alone(model: nn.Module, sink: Sink) -> Iterator[Sink]:
    """A sink that hands calls to `sink` without the compressed keys that a compressor has just put out."""
    appended: dict[str, int] = {}

    def count(name: str, output: Any) -> None:
        keys = output[0] if isinstance(output, tuple) else output
        appended[name.rpartition(".")[0]] = keys.shape[2]

    with after(model, [f"{name}.compressor" for name in compressing(model)], count):
        yield lambda call: sink(_first_keys(call, call.k.shape[2] - appended.pop(call.module, 0)))


def _first_keys(call: Call, n: int) -> Call:
    """A call with its first n keys alone; its own attention function is for all of them."""
    if n == call.k.shape[2]:
        return call

    def first(x: Tensor | None) -> Any:
        return None if x is None else x[..., :n]

    return replace(
        call,
        k=call.k[:, :, :n],
        v=None if call.v is None else call.v[:, :, :n],
        bias=first(call.bias),
        allowed=first(call.allowed),
        logits=first(call.logits),
        pattern=None,
        attend=None,
    )
