"""Audit of the positional encoding that each layer applies, against the configuration."""

from spectrope.checkpoints.audit.compare import Discrepancy
from spectrope.checkpoints.audit.diff import Difference, diff
from spectrope.checkpoints.audit.records import AbsoluteRecord, Audit, HeadRecord, LayerRecord, ServingRecord
from spectrope.checkpoints.audit.run import audit

__all__ = [
    "AbsoluteRecord",
    "Audit",
    "Difference",
    "Discrepancy",
    "HeadRecord",
    "LayerRecord",
    "ServingRecord",
    "audit",
    "diff",
]
