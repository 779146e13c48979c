"""What can be measured on a finished run; each measure leaves the table of its name."""

from spectrope.lab.measures.base import MEASURES, Measure, TableMeasure

__all__ = ["MEASURES", "Measure", "TableMeasure"]
