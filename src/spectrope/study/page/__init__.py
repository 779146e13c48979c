"""The page of a study: verdicts, figures with the paper's numbers, and a list of missing runs."""

from spectrope.study.page.effects import effects
from spectrope.study.page.page import effect, headline_note, write_replication

__all__ = ["effect", "effects", "headline_note", "write_replication"]
