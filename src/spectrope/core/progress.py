"""Progress callbacks and stop requests of long computations."""

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import FrameType


@dataclass(frozen=True)
class Progress:
    """Progress of a computation.

    Args:
        stage: What is being done: "train", "ablate", "spectrum", "lengths", "learning", "audit" or "done".
        done: Steps, heads, layers or lengths done.
        total: Steps, heads, layers or lengths in all.
        accuracy: Latest held-out accuracy, as a fraction, or None.
        job: Number of the job in its plan, from 0.
        evaluations: Scores so far by name, the latest last, where a trainer reports them.
    """

    stage: str
    done: int
    total: int
    accuracy: float | None = None
    job: int = 0
    evaluations: Sequence[Mapping[str, float | None]] = ()


Watch = Callable[[Progress], None]


def unwatched(progress: Progress) -> None:
    """No-op progress callback.

    Example:
        >>> import spectrope as sp
        >>> sp.train("rope", epochs=1, n_examples=60, watch=sp.unwatched).finished
        True
    """


Stop = Callable[[], bool]


def never() -> bool:
    """Never stop."""
    return False


@contextlib.contextmanager
def stop_on_signal() -> Iterator[Stop]:
    """Turn the first SIGINT or SIGTERM into a request to stop; a second one raises `KeyboardInterrupt`.

    Outside the main thread, where Python accepts no signal handlers, it never requests a stop.
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


@contextlib.contextmanager
def exit_on_interrupt() -> Iterator[None]:
    """Let SIGINT end the process at once while modules load, when nothing has been begun.

    An exception within an import would end with a traceback. A handler other than Python's own stays.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, _exit)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _exit(number: int, frame: FrameType | None) -> None:
    os.write(2, b"spectrope: interrupted.\n")
    os._exit(128 + number)
