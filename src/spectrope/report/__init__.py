"""Figures and pages, drawn from run folders alone."""

from spectrope.report.page import write_report
from spectrope.report.save import save_figure

__all__ = ["save_figure", "write_report"]
