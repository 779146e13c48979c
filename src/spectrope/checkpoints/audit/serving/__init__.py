"""Check that caches, chunks, padding and packing give kernels and outputs of a plain forward pass.

A mode is a function of a `ServedModel`, in a file of its own, that returns what differs; `modes.py` has
the list.
"""

from spectrope.checkpoints.audit.serving.kernels import AGREE, Refused, bound
from spectrope.checkpoints.audit.serving.limits import by_default
from spectrope.checkpoints.audit.serving.model import ServedModel, served_model
from spectrope.checkpoints.audit.serving.modes import not_decoded, serving_records
from spectrope.checkpoints.audit.serving.tokens import KEPT, served_tokens, uncrossed

__all__ = [
    "AGREE",
    "KEPT",
    "Refused",
    "ServedModel",
    "bound",
    "by_default",
    "not_decoded",
    "served_model",
    "served_tokens",
    "serving_records",
    "uncrossed",
]
