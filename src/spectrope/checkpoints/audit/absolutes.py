"""What the embeddings of a stack add by position, against what is declared."""

from spectrope.checkpoints.audit.compare import Discrepancy
from spectrope.checkpoints.audit.declaration import declared_offset
from spectrope.checkpoints.audit.fields import Declaration
from spectrope.checkpoints.audit.records import AbsoluteRecord, LayerVerdict
from spectrope.checkpoints.probes.constant_token import Absolute

VARIES = 1e-9  # Share of energy from which an input counts as varying over positions.


def absolute_record(absolute: Absolute, declaration: Declaration) -> AbsoluteRecord:
    """Compare the absolute term of a stack with its declaration."""
    varies, declared = absolute.variation > VARIES, declared_offset(declaration)
    rows = absolute.rows.tolist()
    first = rows[0] if varies and rows else None
    consecutive = rows == list(range(rows[0], rows[0] + len(rows))) if rows else True
    findings: list[Discrepancy] = []
    if declared is not None and not varies:
        findings.append(Discrepancy("absolute term", "a learned table", "none"))
    elif declared is not None and first is not None and (first != declared or not consecutive):
        got = str(first) if consecutive else "rows out of order"
        findings.append(
            Discrepancy("first position", f"row {declared}", f"row {got}" if consecutive else got)
        )
    verdict: LayerVerdict = "differs" if findings else "matches"
    if declared is None and varies:
        verdict = "undeclared"
    elif declared is not None and varies and first is None:
        verdict = "cannot tell"
    return AbsoluteRecord(
        block=absolute.block,
        variation=absolute.variation,
        table=absolute.table if varies else "",
        first_row=first,
        declared_row=declared,
        verdict=verdict,
        findings=tuple(findings),
        term=absolute.term if varies else None,
    )
