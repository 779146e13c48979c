"""What carries out the jobs of a plan: on this machine, or on many."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from spectrope.core.errors import Interrupted, SpectropeError
from spectrope.core.interrupt import Stop
from spectrope.lab.events import Event, Listener
from spectrope.lab.job import Job, complete
from spectrope.store import Run
from spectrope.study.rows import Row

Watcher = Callable[[int, Event], None]  # Told the number of a job and what happened in it.
Keep = Callable[[Row], None]


class EngineError(SpectropeError):
    """What carries jobs out cannot be reached, or has given one up."""


class Engine(ABC):
    """Something that does jobs, each of which leaves a row."""

    @abstractmethod
    def __call__(self, jobs: Sequence[Job], root: Path, watch: Watcher, keep: Keep) -> None:
        """Do the jobs, those that `root` holds already included.

        Args:
            jobs: What to do.
            root: Folder of the run folders, on each machine that takes part.
            watch: Told, in this process, of each job's progress.
            keep: Given, in this process, the row of each job that is done.

        Raises:
            EngineError: If what carries them out breaks down.
            Interrupted: After Ctrl-C, once all that is done is kept.
            SpectropeError: If a job fails; the others are done first.
        """


def complete_unless_stopped(job: Job, root: Path, device: torch.device, listen: Listener, stop: Stop) -> Run:
    """Train and measure, as `complete` does, unless asked to stop before the job begins.

    Raises:
        Interrupted: If asked to stop, once all that is done is saved.
    """
    if stop():
        raise Interrupted("stopped between two runs.")
    return complete(job, root, device, listen, stop)
