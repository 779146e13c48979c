"""Figures and pages, drawn from run folders alone."""

from spectrope.report.figures.base import FIGURES
from spectrope.report.page import write_report
from spectrope.report.save import save_figure

__all__ = ["FIGURES", "save_figure", "write_report"]
