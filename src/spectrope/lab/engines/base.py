"""Base class of engines, which carry out the jobs of a plan on one machine or many."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from spectrope.core import EnvironmentLostError, SpectropeError, Watch
from spectrope.lab.job import Job
from spectrope.store import Run

Harvested = TypeVar("Harvested")


class EngineError(SpectropeError):
    """The engine cannot be reached, or failed to complete a job."""


class LostError(EngineError, EnvironmentLostError):
    """The engine has lost the processes or machines that it needs; the same command resumes."""


class Engine(ABC):
    """Carries out jobs and returns what is needed of each finished run."""

    @abstractmethod
    def __call__(
        self,
        jobs: Sequence[Job],
        root: Path,
        watch: Watch,
        harvest: Callable[[Run], Harvested],
        keep: Callable[[Harvested], None],
    ) -> None:
        """Carry out the jobs, including those that are finished under `root` already.

        Args:
            jobs: Jobs to carry out.
            root: Folder of the run folders, on each machine that takes part.
            watch: Progress callback; it is called in this process with the progress of each job.
            harvest: Extracts what is needed of a finished run; called where its folder is, perhaps on another
                machine.
            keep: Called in this process with the harvest of each finished job.

        Raises:
            EngineError: If the engine cannot be reached, or gives a job up.
            LostError: If the engine breaks down.
            Interrupted: After Ctrl-C, once all that is done is kept.
            SpectropeError: If a job fails; the others are done first.
        """
