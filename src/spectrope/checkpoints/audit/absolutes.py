"""Compare the absolute term that the embeddings of a stack add with its declaration."""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import nn
from torch.nn.functional import pad

from spectrope.checkpoints.adapters import FAILURES, layer_name
from spectrope.checkpoints.audit.compare import Discrepancy
from spectrope.checkpoints.audit.declaration import declared_offset
from spectrope.checkpoints.audit.fields import Declaration
from spectrope.checkpoints.audit.layers import BEYOND
from spectrope.checkpoints.audit.predictions import Remedy
from spectrope.checkpoints.audit.records import AbsoluteRecord, LayerVerdict
from spectrope.checkpoints.audit.restarts import named_positions
from spectrope.checkpoints.audit.sinusoids import declared_sinusoids, departure, sinusoids
from spectrope.checkpoints.audit.substitution import Rows
from spectrope.checkpoints.probes.constant_token import Absolute, table_of
from spectrope.checkpoints.probes.far import WHOLE
from spectrope.core import SpectropeError

ROUNDED = 8  # Roundings by which rows may be off after a factor.
AGAIN = "rows equal to earlier ones"
VARIES = 1e-9  # Share of energy from which an input counts as varying over positions.


def absolute_record(absolute: Absolute, declaration: Declaration, noise: float) -> AbsoluteRecord:
    """Compare the absolute term of a stack with its declaration.

    Args:
        absolute: As measured.
        declaration: The configuration.
        noise: Relative rounding error of the model's arithmetic.
    """
    declaration = declaration.of(layer_name(absolute.block)[0])
    varies, declared = absolute.variation > VARIES, declared_offset(declaration)
    rows = absolute.rows.tolist()
    first = rows[0] if varies and rows else None
    computed = declared_sinusoids(declaration)
    findings: list[Discrepancy] = []
    if declared is not None and not varies:
        findings.append(Discrepancy("absolute term", "a table of positions", "none"))
    elif declared is not None and first is not None:
        findings = _lookups(absolute, declared, noise)
    if computed and declared is not None and varies and not findings:
        findings = _values(absolute, declared, computed, noise)
    verdict: LayerVerdict = "differs" if findings else "matches"
    if declared is None and varies:
        verdict = "undeclared"
    elif declared is not None and varies and first is None and not computed:
        verdict = "cannot tell"
    return AbsoluteRecord(
        block=absolute.block,
        variation=absolute.variation,
        table=absolute.table if varies else "",
        first_row=first,
        declared_row=declared,
        verdict=verdict,
        findings=tuple(findings),
        length=len(absolute.states),
        term=absolute.term if varies else None,
    )


def absolute_remedies(
    absolute: Absolute, record: AbsoluteRecord, model: nn.Module, declaration: Declaration
) -> list[Remedy]:
    """What would put each finding of an absolute term right.

    Args:
        absolute: As measured.
        record: Of it.
        model: Without its head.
        declaration: The configuration.
    """
    module = model.get_submodule(record.table)
    table, first = table_of(record.table, module), record.declared_row
    if absolute.looked_up is None or table is None or first is None:
        return [Remedy(module, one, "no table whose rows differ is looked up") for one in record.findings]
    rows = table[first:]
    if computed := declared_sinusoids(declaration.of(layer_name(absolute.block)[0])):
        positions, width = torch.arange(len(rows)) + first, rows.shape[1] - rows.shape[1] % 2
        rows = pad(sinusoids(positions, width, computed), (0, rows.shape[1] - width))
    return [Remedy(module, one, Rows(rows)) for one in record.findings]


def with_later_rows(
    records: Sequence[AbsoluteRecord],
    measured: Callable[[int], Sequence[Absolute]],
    model: nn.Module,
    declaration: Declaration,
    stop: int,
    noise: float,
) -> tuple[AbsoluteRecord, ...]:
    """Records of tables with what differs at positions beyond the audit's, up to `WHOLE` of them.

    A learned table with rows for fewer positions than are declared differs, too.

    Args:
        records: Of the audit's length.
        measured: The absolute terms at a length.
        model: Without its head.
        declaration: The configuration.
        stop: Positions that the configuration declares.
        noise: Relative rounding error of the model's arithmetic.
    """
    right = [one for one in records if one.verdict == "matches" and one.table]
    end = min(stop, WHOLE, *(_positions_of(model, one) for one in right))
    if any(one.length < end for one in right):
        # which models that take fewer positions for other reasons raise
        with contextlib.suppress(SpectropeError, *FAILURES):
            later = [absolute_record(one, declaration, noise) for one in measured(end)]
            records = [
                replace(one, verdict=other.verdict, findings=other.findings, length=other.length)
                if one in right
                else one
                for one, other in zip(records, later, strict=True)
            ]
    return tuple(_with_room(one, model, stop) for one in records)


def _with_room(record: AbsoluteRecord, model: nn.Module, stop: int) -> AbsoluteRecord:
    """A record with a finding where a learned table has rows for fewer positions than are declared."""
    learned = record.table and isinstance(model.get_submodule(record.table), nn.Embedding)
    if record.verdict != "matches" or not learned:
        return record
    rows, declared = _positions_of(model, record), f"a table of {stop} positions"
    if rows < stop:
        short = Discrepancy("absolute term", declared, f"rows of {rows} positions")
        return replace(record, verdict="differs", findings=(short,))
    if (first := _first_repeated(model, record, stop)) is not None:
        again = Discrepancy("absolute term", declared, f"{AGAIN} from position {first} on")
        return replace(record, verdict="differs", findings=(again,))
    return record


def unrepaired(record: AbsoluteRecord) -> str:
    """Why nothing takes the place of rows that are wrong beyond the audited length, or that are repeated."""
    repeated = any(one.effective.startswith(AGAIN) for one in record.findings)
    return "the rows that the table should hold are not known" if repeated else BEYOND


def _first_repeated(model: nn.Module, record: AbsoluteRecord, stop: int) -> int | None:
    """The position from which on all rows of a table are equal to earlier ones; None if there is none."""
    table, start = table_of(record.table, model.get_submodule(record.table)), max(0, record.first_row or 0)
    if table is None:
        return None
    rows = table[start : start + stop]
    _, kinds = rows.unique(dim=0, return_inverse=True)
    seen, first = set[int](), 0
    for position, kind in enumerate(kinds.tolist()):
        if kind not in seen:
            first = position + 1
        seen.add(kind)
    return first if 1 < first < len(rows) else None


def _positions_of(model: nn.Module, record: AbsoluteRecord) -> int:
    """Positions that the rows of a table hold; more would end the process on some devices."""
    table = table_of(record.table, model.get_submodule(record.table))
    return WHOLE if table is None else len(table) - max(0, record.first_row or 0)


def _lookups(absolute: Absolute, declared: int, noise: float) -> list[Discrepancy]:
    """Where tokens look up other rows than their own, or rows are multiplied or rounded."""
    rows, first = absolute.rows, int(absolute.rows[0])
    if bool((rows < 0).any()):
        return [Discrepancy("absolute term", "rows of the table", "vectors that are not rows of it")]
    if not torch.equal(rows, torch.arange(first, first + len(rows), device=rows.device)):
        return [Discrepancy("positions", "those of the tokens", named_positions(rows.double() - declared))]
    if first != declared:
        return [Discrepancy("first position", f"row {declared}", f"row {first}")]
    if abs(absolute.factor - 1) > max(1e-3, absolute.off):
        factor = absolute.factor
        text = f"{factor:.4g} times them"
        return [Discrepancy("absolute term", "rows of the table", text, residual=abs(factor - 1))]
    if absolute.off > ROUNDED * noise:
        text = f"rows off by up to {absolute.off:.2g} of the largest number"
        note = "as when the table is rounded to low precision"
        return [Discrepancy("absolute term", "rows of the table", text, note, residual=absolute.off)]
    return []


def _values(absolute: Absolute, declared: int, convention: str, noise: float) -> list[Discrepancy]:
    """Where a computed table holds other values than its architecture's."""
    found = departure(absolute.term, declared, convention, noise)  # pyright: ignore[reportArgumentType]
    if found is None:
        return []
    respect, words = found
    return [Discrepancy(respect, "the sines and cosines of the architecture", words)]
