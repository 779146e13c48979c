"""Runs as older versions wrote them: without digests, with tables that count layers and heads from 1."""

import re

import polars as pl

from spectrope.store import Run


def counted_from_one(table: pl.DataFrame) -> pl.DataFrame:
    """A table of today, counted as it was then."""
    numbers = [pl.col(name) + 1 for name in ("layer", "head") if name in table.columns]
    texts = [
        pl.Series(name, [re.sub(r"\d+", lambda found: str(int(found[0]) + 1), text) for text in table[name]])
        for name in ("layers", "heads")
        if name in table.columns
    ]
    return table.with_columns(*numbers, *texts)


def write_unmarked(run: Run, name: str, table: pl.DataFrame) -> None:
    """Write a table without a word about how it counts."""
    table.write_parquet(run.path / f"{name}.parquet")
    without_digests(run)


def without_digests(run: Run) -> Run:
    """A run as version 0.1.0 left it, whose files may then be changed by hand."""
    for path in run.path.glob("*.sha256"):
        path.unlink()
    return run


def make_old(run: Run) -> Run:
    """Rewrite all tables of a run as an older version would have written them."""
    for name in run.frames:
        write_unmarked(run, name, counted_from_one(run.frame(name)))
    return run
