"""What a model's attention really applies, layer by layer, and whether its configuration says so."""

from spectrope.auditing.compare import Finding
from spectrope.auditing.diff import Difference, diff
from spectrope.auditing.records import AbsoluteRecord, Audit, HeadRecord, LayerRecord, PathRecord
from spectrope.auditing.run import audit

__all__ = [
    "AbsoluteRecord",
    "Audit",
    "Difference",
    "Finding",
    "HeadRecord",
    "LayerRecord",
    "PathRecord",
    "audit",
    "diff",
]
