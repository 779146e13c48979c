"""What a model's attention really applies, layer by layer, and whether its configuration says so."""

from spectrope.checkpoints.audit.compare import Discrepancy
from spectrope.checkpoints.audit.diff import Difference, diff
from spectrope.checkpoints.audit.records import AbsoluteRecord, Audit, HeadRecord, LayerRecord, PathRecord
from spectrope.checkpoints.audit.run import audit

__all__ = [
    "AbsoluteRecord",
    "Audit",
    "Difference",
    "Discrepancy",
    "HeadRecord",
    "LayerRecord",
    "PathRecord",
    "audit",
    "diff",
]
