"""Find linear biases that differ between the rows of a batch."""

from spectrope.checkpoints.adapters import Call
from spectrope.checkpoints.audit.bias import linear_slopes
from spectrope.checkpoints.audit.compare import SLOPE, Discrepancy
from spectrope.checkpoints.audit.encoding import LayerEncoding

EXPLAINED = (
    "SPE301",
    "SPE404",
)  # What other slopes in the second row look like.


def slopes_by_row(
    findings: list[Discrepancy], call: Call, declared: LayerEncoding, noise: float
) -> list[Discrepancy]:
    """A layer's findings, with one that explains them where rows of a batch get other slopes.

    Args:
        findings: Of the layer.
        call: Whose batch holds at least two contents.
        declared: Its slopes, and the factor on its products.
        noise: Relative rounding error of the model's arithmetic.
    """
    if declared.slopes is None or not findings:
        return findings
    first, second = (_slopes(call, row, declared.scale) for row in range(2))
    if first is None or second is None:
        return findings
    within = max(SLOPE, 4 * noise) * max(map(abs, first))
    off = [head for head, (a, b) in enumerate(zip(first, second, strict=True)) if abs(a - b) > within]
    if not off:
        return findings
    head = off[0]
    got = f"{first[head]:.6g} and {second[head]:.6g} in head {head} of rows 0 and 1"
    note = f"{len(off)} of {len(first)} heads, as when rows and heads lie in the other order"
    one = Discrepancy("slopes", "the same in every row of a batch", got, note)
    return [one, *(finding for finding in findings if finding.code not in EXPLAINED)]


def _slopes(call: Call, row: int, scale: float | None) -> list[float] | None:
    """Slopes of all heads in one row; None where they are not linear, or the row has no bias of its own."""
    if call.logits is not None and scale is not None:
        bias = call.logits[row].double() - scale * call.products()[row].double()
    elif call.logits is None and call.bias is not None and len(call.bias) > row:
        bias = call.bias[row].expand(call.q.shape[1], -1, -1)
    else:
        return None
    allowed = call.allowed[row if len(call.allowed) > 1 else 0]
    slopes = linear_slopes(bias.masked_fill(~allowed, 0.0), allowed)
    return None if slopes is None else slopes.tolist()
