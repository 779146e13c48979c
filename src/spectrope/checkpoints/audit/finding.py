"""Findings as flat records."""

from dataclasses import dataclass

from spectrope.checkpoints.audit.compare import Discrepancy
from spectrope.checkpoints.audit.impact import Impact


@dataclass(frozen=True)
class Finding:
    """One respect in which a model departs from its declaration.

    Args:
        code: Of the catalogue; `spectrope explain CODE` prints its entry.
        where: Layer, embeddings or serving mode.
        layer: Number of the layer in its stack; None elsewhere.
        head: Query head or key-value head, as the message says; None for a whole layer.
        declared: What was expected.
        effective: What was measured.
        residual: Largest relative departure, where it is a number and was computed.
        impact: Effect on the model's predictions, or the reason why it was not computed.
        message: All of it in one line.
    """

    code: str
    where: str
    layer: int | None
    head: int | None
    declared: str
    effective: str
    residual: float | None
    impact: Impact
    message: str


def finding_of(where: str, layer: int | None, discrepancy: Discrepancy, impact: Impact) -> Finding:
    """The record of one discrepancy."""
    return Finding(
        code=discrepancy.code,
        where=where,
        layer=layer,
        head=discrepancy.head,
        declared=discrepancy.expected,
        effective=discrepancy.effective,
        residual=discrepancy.residual,
        impact=impact,
        message=str(discrepancy),
    )
