"""What `import spectrope as sp` offers: each question as one function, of runs and models alike."""

__all__ = ["listing", "run_or_checkpoint", "take_up"]

from .runs import listing
from .targets import run_or_checkpoint, take_up
