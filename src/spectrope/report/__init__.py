"""Figures and pages, drawn from run folders and audits alone."""

from spectrope.report.audit_page import write_audit
from spectrope.report.figures.base import FIGURES
from spectrope.report.page import write_report
from spectrope.report.save import save_figure

__all__ = ["FIGURES", "save_figure", "write_audit", "write_report"]
