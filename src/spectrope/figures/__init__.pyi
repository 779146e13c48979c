"""Figures and pages, drawn from run folders alone."""

__all__ = [
    "BLUE",
    "DROP",
    "FIGURES",
    "GREEN",
    "INK",
    "LOSS",
    "QUIET",
    "RED",
    "AtlasTables",
    "Drawing",
    "Figure",
    "HeadEffects",
    "HeadValue",
    "Marks",
    "Panel",
    "Section",
    "Table",
    "atlas_spec",
    "check_figure",
    "check_page",
    "colour",
    "exact",
    "figure_spec",
    "head_map",
    "law_tables",
    "legend",
    "outlines",
    "panels_spec",
    "rendered",
    "rows",
    "span",
    "styles",
    "templates_of",
    "write_atlas",
    "write_page",
    "write_report",
    "write_spec",
    "written_svg",
    "wrong_declarations",
]

from .atlas import AtlasTables, atlas_spec, write_atlas
from .base import FIGURES, Figure, Marks, Panel, colour, exact, rows, span
from .drawing import Drawing, HeadEffects
from .kinds.heatmap import DROP, HeadValue, head_map
from .kinds.measured import legend
from .kinds.violin import outlines
from .names import BLUE, GREEN, LOSS, RED, styles
from .page import write_report
from .places import check_figure, check_page
from .save import figure_spec, write_spec, written_svg
from .shell import Section, Table, rendered, templates_of, write_page
from .sources import law_tables, wrong_declarations
from .spec import INK, QUIET, panels_spec
