"""Options and timing that actions of `spectrope claims` share."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import torch
import tyro

from spectrope.console import console
from spectrope.lab import Job, JobCost, calibrate

Results = Annotated[Path, tyro.conf.arg(name="rows", help="Folder of the results, one file per scale.")]


def timed(jobs: Sequence[Job], device: torch.device, threads: int) -> list[JobCost]:
    """The cost of each job, from a few steps of each kind of run on some threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with console.status("Timing a few steps of each kind of run"):
            return calibrate(jobs, device)
    finally:
        torch.set_num_threads(before)
