"""The page of a study: verdicts, figures beside the paper's numbers, and what was not run."""

from spectrope.study.page.effects import effects
from spectrope.study.page.page import effect, write_replication

__all__ = ["effect", "effects", "write_replication"]
