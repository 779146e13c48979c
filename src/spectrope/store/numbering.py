"""Numbering of layers and heads from 0; older results, numbered from 1, are converted when they are read."""

import re
from collections.abc import Iterable, Mapping

import polars as pl

FIELD = "counts_from"  # Of a record: 0; older records, which count from 1, lack it.
METADATA = {f"spectrope.{FIELD}": "0"}  # Of a Parquet file, likewise.
NUMBERS = frozenset({"layer", "head"})  # Columns that hold one number in each row.
TEXTS = frozenset({"layers", "heads"})  # Columns that hold several as text, such as "0-15" or "0, 2".


def counts_from_zero(metadata: Mapping[str, str]) -> bool:
    """Whether a Parquet file with this metadata counts layers and heads from 0."""
    return METADATA.items() <= metadata.items()


def renumbered(table: pl.DataFrame) -> pl.DataFrame:
    """A table that counts layers and heads from 1, with the same ones counted from 0."""
    return pl.DataFrame([_renumbered_column(column) for column in table])


def _renumbered_column(column: pl.Series) -> pl.Series:
    if column.name in NUMBERS and column.dtype.is_integer():
        return column - 1
    if column.name in TEXTS and column.dtype == pl.String:
        return column.replace(_renumbered_texts(column.drop_nulls().unique()))
    return column


def _renumbered_texts(texts: Iterable[str]) -> dict[str, str]:
    return {text: re.sub(r"\d+", lambda number: str(int(number[0]) - 1), text) for text in texts}
