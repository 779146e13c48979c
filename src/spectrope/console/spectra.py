"""Display of the spectra of heads, for runs and checkpoints."""

from collections.abc import Iterator, Sequence

import polars as pl

from spectrope.lab import QUANTITIES

HEADS_SHOWN = 24
TESTED = "toeplitz"  # The quantity that has a p-value, and by which heads are ordered.


def head_parts(
    table: pl.DataFrame, data: str, labels: Sequence[str]
) -> Iterator[str | tuple[str, pl.DataFrame]]:
    """The heads with the largest Toeplitz share, after a line that says what the columns are.

    Args:
        table: Table "spectrum".
        data: What was measured, the beginning of that line.
        labels: Columns that name a head.
    """
    headed = {name: QUANTITIES[name] for name in QUANTITIES if QUANTITIES[name].heading}
    known = {n: q for n, q in headed.items() if n in table.columns and table[n].is_not_null().any()}
    tested = known.pop(TESTED, headed[TESTED])
    captions = "; ".join(f"{quantity.heading}: {quantity.caption}" for quantity in known.values())
    yield (
        f"{data}; layers and heads count from 0. {tested.heading}: {tested.caption}, "
        f"{table['toeplitz_null'][0]:.3f} by chance; p: adjusted for false discoveries; {captions}."
    )
    shown = table.sort(TESTED, descending=True, nulls_last=True).head(HEADS_SHOWN)
    columns = {TESTED: tested.heading, "p_adjusted": "p"} | {n: q.heading for n, q in known.items()}
    yield "", shown.select(*labels, *(pl.col(old).alias(new) for old, new in columns.items()))
