"""What carries out the jobs of a plan: on this machine, or on many."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from spectrope.core import SpectropeError, Watch
from spectrope.lab.job import Job
from spectrope.store import Run

Harvested = TypeVar("Harvested")


class EngineError(SpectropeError):
    """What carries jobs out cannot be reached, or has given one up."""


class Engine(ABC):
    """Something that does jobs and brings home what is wanted of each finished run."""

    @abstractmethod
    def __call__(
        self,
        jobs: Sequence[Job],
        root: Path,
        watch: Watch,
        harvest: Callable[[Run], Harvested],
        keep: Callable[[Harvested], None],
    ) -> None:
        """Do the jobs, those that `root` holds already included.

        Args:
            jobs: What to do.
            root: Folder of the run folders, on each machine that takes part.
            watch: Shown, in this process, each job's progress.
            harvest: What is wanted of a finished run; called where its folder is, perhaps on another machine.
            keep: Given, in this process, what was harvested of each job that is done.

        Raises:
            EngineError: If what carries them out breaks down.
            Interrupted: After Ctrl-C, once all that is done is kept.
            SpectropeError: If a job fails; the others are done first.
        """
