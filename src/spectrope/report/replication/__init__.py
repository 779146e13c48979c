"""The page of a study: verdicts, figures beside the paper's numbers, and what was not run."""

from spectrope.report.replication.page import write_replication

__all__ = ["write_replication"]
