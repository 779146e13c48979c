"""Tables that a file of the user's own has made: a column says which version of the file it was."""

import polars as pl

from spectrope.core import digest_of
from spectrope.store import Run

DIGEST = "file_digest"


def with_digest(table: pl.DataFrame, member: object) -> pl.DataFrame:
    """A table that a class has made, with the digest of its file where that is the user's own."""
    digest = digest_of(member)
    return table if digest is None else table.with_columns(pl.lit(digest).alias(DIGEST))


def is_made_by(run: Run, name: str, member: object) -> bool:
    """Whether a run has a table; where the class that makes it is the user's own, by its present file."""
    digest = digest_of(member)
    if digest is None or not run.has_frame(name):
        return run.has_frame(name)
    table = run.frame(name)
    return DIGEST in table.columns and digest in table[DIGEST]
