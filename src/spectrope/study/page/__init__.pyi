"""The page of a study: verdicts, figures with the paper's numbers, and a list of missing runs."""

__all__ = ["effect", "effects", "headline_note", "write_replication"]

from .effects import effects
from .page import effect, headline_note, write_replication
