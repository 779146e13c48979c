"""Figures and pages, drawn from run folders alone."""

from spectrope.figures.base import FIGURES
from spectrope.figures.page import write_report
from spectrope.figures.save import save_figure

__all__ = ["FIGURES", "save_figure", "write_report"]
