"""Mark tables that were made by the user's own files with the version of the file."""

import polars as pl

from spectrope.core import digest_of
from spectrope.store import Run

DIGEST = "file_digest"


def with_digests(table: pl.DataFrame, *members: object) -> pl.DataFrame:
    """A table that some classes have made, with the digests of their files where those are the user's own."""
    digests = [digest for digest in map(digest_of, members) if digest is not None]
    return table.with_columns(pl.lit(" ".join(digests)).alias(DIGEST)) if digests else table


def is_made_by(run: Run, name: str, member: object) -> bool:
    """Whether a run has a table; where the class that makes it is the user's own, by its present file."""
    digest = digest_of(member)
    if digest is None or not run.has_frame(name):
        return run.has_frame(name)
    table = run.frame(name)
    return DIGEST in table.columns and digest in table[DIGEST]
