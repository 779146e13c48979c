"""Spectral quantities of attention heads, one family per file; each becomes a column of table "spectrum"."""

from spectrope.lab.quantities.base import QUANTITIES, HeadQuantity, installed_quantities

__all__ = ["QUANTITIES", "HeadQuantity", "installed_quantities"]
