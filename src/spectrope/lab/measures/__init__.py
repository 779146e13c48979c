"""Measures of finished runs, each of which stores a table of its name."""

from spectrope.lab.measures.base import MEASURES, Measure, TableMeasure

__all__ = ["MEASURES", "Measure", "TableMeasure"]
