"""Biases by bucket, compared with the table that they are looked up in."""

from collections.abc import Iterator

import torch
from jaxtyping import Float, Int
from torch import Tensor

from spectrope.checkpoints.adapters import Call
from spectrope.checkpoints.audit.bias import Buckets, lag_table, split_logits
from spectrope.checkpoints.audit.compare import Discrepancy
from spectrope.checkpoints.audit.known import Known

OF_TABLE = ("buckets", "encoding")  # Respects of which the table itself says more.


def table_findings(
    findings: list[Discrepancy],
    call: Call,
    table: Float[Tensor, "buckets h"] | None,
    buckets: Buckets,
    noise: float,
    known: Known,
) -> list[Discrepancy]:
    """A layer's findings, with where its biases are not those that its table has for their lags.

    Args:
        findings: Of the layer.
        call: Of its kernel.
        table: By bucket and head; None where none was found, which leaves the findings as they are.
        buckets: As declared.
        noise: Relative rounding error of the model's arithmetic.
        known: What was found of other layers' biases.
    """
    measured = _by_lag(call, noise, known)
    if table is None or measured is None or table.shape[1] != call.q.shape[1]:
        return findings
    lag, values = measured
    wanted = table[buckets.of(lag)].T
    within = 50 * noise * max(wanted.abs().max().item(), 1e-30)
    if call.logits is not None:  # biases are differences of logits
        within += 8 * noise * call.logits.masked_fill(~call.allowed, 0.0).abs().max().item()
    if bool(((values - wanted).abs() <= within).all()):
        return findings
    if bool((values.abs() <= within).all()):
        rest = [one for one in findings if one.what not in OF_TABLE]
        return [*rest, Discrepancy("encoding of the bias table", str(buckets), "none")]
    if any(one.what == "buckets" and "none of" not in one.effective for one in findings):
        return findings
    rest = [one for one in findings if one.what not in OF_TABLE]
    return [*rest, *_explained(lag, values, table, buckets, within)]


def _by_lag(call: Call, noise: float, known: Known) -> tuple[Int[Tensor, " n"], Float[Tensor, "h n"]] | None:
    """Bias by lag and head; zero where the kernel adds none."""
    _, bias = split_logits(call)
    if bias is None:
        bias = torch.zeros(*call.q.shape[1:3], call.k.shape[2], dtype=torch.float64)
    return known.of(lag_table, bias, call.allowed[0], noise)


def _explained(
    lag: Int[Tensor, " n"],
    values: Float[Tensor, "h n"],
    table: Float[Tensor, "buckets h"],
    buckets: Buckets,
    within: float,
) -> Iterator[Discrepancy]:
    """What the biases are instead: the table's under other signs, sizes, heads, lags or buckets."""
    wanted = table[buckets.of(lag)].T
    factor = (values * wanted).sum().item() / wanted.square().sum().item()
    if bool(((values - factor * wanted).abs() <= within * max(abs(factor), 1.0)).all()):
        text = "their negatives" if abs(factor + 1) < 1e-3 else f"{factor:.4g} times them"
        yield Discrepancy("values of the bias table", "those of its rows", text, residual=abs(factor - 1))
        return
    if bool(((values - table[buckets.of(-lag)].T).abs() <= within).all()):
        yield Discrepancy("buckets", str(buckets), "those of the mirrored lags")
        return
    if (moved := _shifted(lag, values, table, buckets, within)) is not None:
        yield Discrepancy("buckets", str(buckets), moved)
        return
    yield from _heads(values, wanted, within)


def _shifted(
    lag: Int[Tensor, " n"],
    values: Float[Tensor, "h n"],
    table: Float[Tensor, "buckets h"],
    buckets: Buckets,
    within: float,
) -> str | None:
    """Which rows are looked up instead, if every bias is a row of the table; None if one is not."""
    apart = (values.T[:, None] - table[None]).abs().amax(-1)  # (n, buckets)
    nearest, rows = apart.min(1)
    if not bool((nearest <= within).all()):
        return None
    declared = buckets.of(lag)
    for by in (1, -1, 2, -2):
        if bool((rows == buckets.of(lag + by)).all()):
            return f"those of lags {abs(by)} {'larger' if by > 0 else 'smaller'}"
        if bool((rows == (declared + by).clamp(0, len(table) - 1)).all()):
            return f"the rows {abs(by)} {'after' if by > 0 else 'before'} them"
    place = int((rows != declared).nonzero()[0])
    return f"lag {int(lag[place])} in row {int(rows[place])} instead of {int(declared[place])}"


def _heads(
    values: Float[Tensor, "h n"], wanted: Float[Tensor, "h n"], within: float
) -> Iterator[Discrepancy]:
    """A finding per head whose biases are not its own; one of the layer if all are no row of the table."""
    wrong = [h for h in range(len(values)) if bool(((values[h] - wanted[h]).abs() > within).any())]
    others = {h: _owner(values[h], wanted, within) for h in wrong}
    if len(wrong) == len(values) and not any(owner is not None for owner in others.values()):
        off = (values - wanted).abs().max().item()
        yield Discrepancy("values of the bias table", "those of its rows", f"off by up to {off:.3g}")
        return
    for head in wrong:
        owner, size = others[head], values[head].abs().max().item()
        text = f"those of head {owner}" if owner is not None else "none" if size <= within else "others"
        yield Discrepancy(f"values of the bias table of head {head}", "its own", text, head=head)


def _owner(values: Float[Tensor, " n"], wanted: Float[Tensor, "h n"], within: float) -> int | None:
    """The head whose biases these are, if any's."""
    alike = ((wanted - values).abs() <= within).all(1).nonzero()
    return int(alike[0]) if len(alike) else None
