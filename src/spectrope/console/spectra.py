"""Display of the spectra of heads, for runs and checkpoints."""

from collections.abc import Iterator, Mapping, Sequence

import polars as pl

from spectrope.lab import QUANTITIES

HEADS_SHOWN = 24
SPARE = ("toeplitz_content", "toeplitz_raw")  # Shown last, since narrow terminals omit the last columns.
TESTED = "toeplitz"  # The quantity that has a p-value, and by which heads are ordered.


def head_parts(
    table: pl.DataFrame, data: str, labels: Sequence[str]
) -> Iterator[str | tuple[str, pl.DataFrame]]:
    """The heads with the largest Toeplitz share, preceded by a line that explains the columns.

    Args:
        table: Table "spectrum".
        data: What was measured, the beginning of that line.
        labels: Columns that name a head.
    """
    headed = {name: QUANTITIES[name] for name in QUANTITIES if QUANTITIES[name].heading}
    known = {n: q for n, q in headed.items() if n in table.columns and table[n].is_not_null().any()}
    tested = known.pop(TESTED, headed[TESTED])
    known = dict(sorted(known.items(), key=lambda one: one[0] in SPARE))
    captions = "; ".join(f"{quantity.heading}: {quantity.caption}" for quantity in known.values())
    yield (
        f"{data}; layers and heads count from 0. {tested.heading}: {tested.caption}, "
        f"{table['toeplitz_null'][0]:.3f} by chance; p: adjusted for false discoveries; {captions}."
    )
    shown = table.sort(TESTED, descending=True, nulls_last=True).head(HEADS_SHOWN)
    columns = {TESTED: tested.heading, "p_adjusted": "p"} | {n: q.heading for n, q in known.items()}
    yield "", shown.select(*labels, *(pl.col(old).alias(new) for old, new in columns.items()))


def term_parts(tables: Mapping[str, pl.DataFrame]) -> Iterator[str | tuple[str, pl.DataFrame]]:
    """The terms of logits, as means over the heads of each layer, and the deviations from the assumptions.

    Args:
        tables: As `term_tables` makes them.
    """
    if "terms" in tables:
        yield from _terms(tables["terms"])
        yield _assumptions(tables["assumptions"])
    if "undefined_terms" in tables:
        yield "layers without such terms", tables["undefined_terms"]


def _labels(table: pl.DataFrame) -> list[str]:
    return [name for name in ("design", "role", "layer") if name in table.columns]


def _terms(table: pl.DataFrame) -> Iterator[str | tuple[str, pl.DataFrame]]:
    """Per design and layer: share of energy, covariance with other terms, and Toeplitz share of each term."""
    first = table.row(0, named=True)
    yield (
        "Terms of the logits, row means removed, as means over heads; layers count from 0. The first word "
        "names the part of the query, the second that of the key; interaction: products with what neither "
        "token nor position explains. Shares and covariances sum to 1. Toeplitz: share of lags in the term "
        f"itself, {first['toeplitz_null']:.3f} by chance; p < .05: heads after adjustment."
    )
    means = table.group_by(*_labels(table), "term", maintain_order=True).agg(
        pl.col("share").mean(),
        pl.col("covariance").mean(),
        pl.col("toeplitz").mean().alias("Toeplitz"),
        (pl.col("p_adjusted") < 0.05).sum().alias("p < .05"),
        pl.len().alias("heads"),
    )
    for (design,), part in means.group_by("design", maintain_order=True):
        yield f"design: {design}", part.drop("design")


def _assumptions(table: pl.DataFrame) -> tuple[str, pl.DataFrame]:
    numbers = [name for name in ("interaction_q", "interaction_k", "commuting") if name in table.columns]
    kept = [name for name in numbers if table[name].is_not_null().any()]
    means = table.group_by(*_labels(table), maintain_order=True).agg(pl.col(kept).mean())
    names = {"interaction_q": "of queries", "interaction_k": "of keys", "commuting": "commutes"}
    caption = "share of the interaction in the variance (Assumption 3.1: 0)"
    if "commuting" in kept:
        caption += ", and of the form in what commutes with rotations"
    return caption, means.rename({name: names[name] for name in kept})
