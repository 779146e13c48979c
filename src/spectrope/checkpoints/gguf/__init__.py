"""Audit of GGUF files: the encoding that a runtime would apply, from metadata and tensors, without running
it."""

from spectrope.checkpoints.gguf.records import FileAudit
from spectrope.checkpoints.gguf.run import audit_gguf, is_gguf

__all__ = ["FileAudit", "audit_gguf", "is_gguf"]
