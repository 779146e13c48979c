"""What jobs tell whoever shows progress."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Event:
    """What happened in a job.

    Args:
        stage: "train", "ablate", "spectrum", "lengths", "learning" or "done".
        done: Steps, heads, layers or lengths done.
        total: Steps, heads, layers or lengths in all.
        accuracy: Latest held-out accuracy, as a fraction, or None.
    """

    stage: str
    done: int
    total: int
    accuracy: float | None = None


Listener = Callable[[Event], None]


def silent(event: Event) -> None:
    """The listener that shows nothing."""
