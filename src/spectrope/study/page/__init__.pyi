"""The page of a study: verdicts, figures with the paper's numbers, and a list of missing runs."""

__all__ = [
    "ClaimFigure",
    "claim_figures",
    "effect",
    "effects",
    "headline_note",
    "paper_drawing",
    "publish",
    "write_replication",
]

from .effects import effects
from .page import effect, headline_note, write_replication
from .paper.page import paper_drawing
from .pictures import ClaimFigure, claim_figures
from .publication import publish
