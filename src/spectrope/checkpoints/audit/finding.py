"""Findings as flat records."""

from dataclasses import dataclass

from spectrope.checkpoints.audit.compare import Discrepancy


@dataclass(frozen=True)
class Finding:
    """One respect in which a model departs from its declaration.

    Args:
        code: Of the catalogue; `spectrope explain CODE` prints its entry.
        where: Layer, embeddings or path.
        layer: Number of the layer in its stack; None elsewhere.
        head: Query head or key-value head, as the message says; None for a whole layer.
        declared: What was expected.
        effective: What was measured.
        residual: Largest relative departure, where it is a number and was computed.
        impact: Effect on the model's predictions; None while it is not measured.
        message: All of it in one line.
    """

    code: str
    where: str
    layer: int | None
    head: int | None
    declared: str
    effective: str
    residual: float | None
    impact: float | None
    message: str


def finding_of(where: str, layer: int | None, discrepancy: Discrepancy) -> Finding:
    """The record of one discrepancy."""
    return Finding(
        code=discrepancy.code,
        where=where,
        layer=layer,
        head=discrepancy.head,
        declared=discrepancy.expected,
        effective=discrepancy.effective,
        residual=discrepancy.residual,
        impact=None,
        message=str(discrepancy),
    )
