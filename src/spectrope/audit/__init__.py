"""What a model's attention really applies, layer by layer, and whether its configuration says so."""

from spectrope.audit.compare import Finding
from spectrope.audit.records import AbsoluteRecord, Audit, HeadRecord, LayerRecord
from spectrope.audit.run import audit

__all__ = ["AbsoluteRecord", "Audit", "Finding", "HeadRecord", "LayerRecord", "audit"]
