"""Attention under any positional encoding, by several implementations that agree."""

from spectrope.attention import explicit, fused
from spectrope.attention.base import IMPLEMENTATIONS, Implementation, attention, fastest

__all__ = [
    "IMPLEMENTATIONS",
    "Implementation",
    "attention",
    "explicit",
    "fastest",
    "fused",
]
