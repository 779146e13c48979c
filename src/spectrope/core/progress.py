"""Progress: what long work reports to whoever shows it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """How far a piece of work has come.

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
    """Show nothing."""
