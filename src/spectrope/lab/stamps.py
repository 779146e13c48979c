"""Mark tables that were computed by user-defined classes with the digest of the file."""

import polars as pl

from spectrope.core import digest_of
from spectrope.store import Run

DIGEST = "file_digest"


def with_digests(table: pl.DataFrame, *members: object) -> pl.DataFrame:
    """A table with the digests of the user files whose classes computed it."""
    digests = [digest for digest in map(digest_of, members) if digest is not None]
    return table.with_columns(pl.lit(" ".join(digests)).alias(DIGEST)) if digests else table


def is_made_by(run: Run, name: str, member: object) -> bool:
    """Whether a run has a table; of a user-defined class, computed by the current file."""
    digest = digest_of(member)
    if digest is None or not run.has_frame(name):
        return run.has_frame(name)
    table = run.frame(name)
    return DIGEST in table.columns and digest in table[DIGEST]
