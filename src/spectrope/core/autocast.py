"""Contexts in which torch takes products in a given precision, or leaves them in their factors' own."""

import contextlib
from collections.abc import Callable, Iterator
from typing import TypeVar

import torch
from torch import Tensor

Item = TypeVar("Item")


def in_precision(device: torch.device, dtype: torch.dtype) -> contextlib.AbstractContextManager[object]:
    """Autocast to `dtype`, or nothing at all for float32."""
    if dtype == torch.float32:
        return contextlib.nullcontext()
    return torch.autocast(device.type, dtype)


def own_precision(x: Tensor) -> contextlib.AbstractContextManager[object]:
    """A context whose products are taken in the precision of their factors, although autocast may be on."""
    place = x.device.type
    on = torch.amp.is_autocast_available(place) and torch.is_autocast_enabled(place)
    return torch.autocast(place, enabled=False) if on else contextlib.nullcontext()


@contextlib.contextmanager
def inference(device: torch.device, dtype: torch.dtype) -> Iterator[None]:
    """Without gradients, and in a precision."""
    with torch.inference_mode(), in_precision(device, dtype):
        yield


def each_within(
    context: Callable[[], contextlib.AbstractContextManager[object]], items: Iterator[Item]
) -> Iterator[Item]:
    """Items, each computed within a context of its own that is left before the item is handed over.

    A generator that yields inside `torch.autocast` leaves it on for its reader; and the end of an inference
    mode inside which it began switches it off for the rest.
    """
    while True:
        with context():
            try:
                item = next(items)
            except StopIteration:
                return
        yield item
