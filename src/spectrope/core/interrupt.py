"""Ctrl-C asks a loop to stop at its next safe point; a second one stops it at once."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

Stop = Callable[[], bool]


def never() -> bool:
    """The stop request that nobody makes."""
    return False


@contextlib.contextmanager
def stop_on_signal() -> Iterator[Stop]:
    """Turn the first SIGINT or SIGTERM into a request to stop; a second one raises `KeyboardInterrupt`.

    Outside the main thread, where Python takes no signal handlers, nobody asks.
    """
    if threading.current_thread() is not threading.main_thread():
        yield never
        return
    asked: list[int] = []

    def ask(number: int, frame: FrameType | None) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
