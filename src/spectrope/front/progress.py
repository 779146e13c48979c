"""Progress bars of the public functions, unless a callback is given."""

import contextlib
from collections.abc import Iterator, Sequence

from spectrope.console import bars, counted
from spectrope.core import Watch


@contextlib.contextmanager
def watching(watch: Watch | None, labels: Sequence[str]) -> Iterator[Watch]:
    """The caller's callback, or else one that shows a bar per label while the block runs."""
    if watch is not None:
        yield watch
        return
    with bars(labels) as shown:
        yield shown.watch


@contextlib.contextmanager
def counting(watch: Watch | None, label: str) -> Iterator[Watch]:
    """The caller's callback, or else one that shows how much of one piece of work is done."""
    if watch is not None:
        yield watch
        return
    with counted(label) as shown:
        yield shown
