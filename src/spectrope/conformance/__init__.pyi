"""Implementations of rotary embeddings against an oracle in float64."""

__all__ = ["Cell", "Conformance", "cells", "conform"]

from .cells import Cell, cells
from .suite import Conformance, conform
