"""The page of a study: verdicts, figures with the paper's numbers, and a list of missing runs."""

__all__ = [
    "ClaimFigure",
    "claim_figures",
    "effect",
    "effects",
    "headline_note",
    "paper_drawing",
    "publish",
    "without_one_seed",
    "write_replication",
]

from .cells import effect
from .effects import effects
from .headline import headline_note, without_one_seed
from .page import write_replication
from .paper.page import paper_drawing
from .pictures import ClaimFigure, claim_figures
from .publication import publish
