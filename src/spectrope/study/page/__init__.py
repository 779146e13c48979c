"""The page of a study: verdicts, figures beside the paper's numbers, and what was not run."""

from spectrope.study.page.page import write_replication

__all__ = ["write_replication"]
