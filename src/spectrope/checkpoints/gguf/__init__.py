"""Audit of GGUF files: what a runtime would apply, read from metadata and tensors without running it."""

from spectrope.checkpoints.gguf.records import FileAudit
from spectrope.checkpoints.gguf.run import audit_gguf, is_gguf

__all__ = ["FileAudit", "audit_gguf", "is_gguf"]
