"""What `import spectrope as sp` offers: each question as one function, of runs and models alike."""

__all__ = ["CheckedRuns", "check_runs", "listing", "run_or_checkpoint", "take_up"]

from .check import CheckedRuns, check_runs
from .runs import listing
from .targets import run_or_checkpoint, take_up
