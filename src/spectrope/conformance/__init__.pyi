"""Implementations of rotary embeddings against an oracle in float64."""

__all__ = ["Conformance", "RotaryCell", "cells", "conform"]

from .cells import RotaryCell, cells
from .suite import Conformance, conform
