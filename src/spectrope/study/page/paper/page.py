"""Page of all figures and tables of the paper, each with our results next to the published ones."""

from pathlib import Path

from spectrope.core import ConfigError
from spectrope.figures import Section, rendered, write_page
from spectrope.study.page.paper.arms import PaperRuns
from spectrope.study.page.paper.items import FIGURES, SOURCE, TABLES

LEAST = 300  # Width of a panel, in pixels.


def write_paper(runs: PaperRuns, path: Path) -> Path:
    """Write the page, whole or not at all, and return its path.

    Raises:
        StoreError: If the file cannot be written.
    """
    return write_page(render_paper(runs), path)


def render_paper(runs: PaperRuns) -> str:
    """The page as text; what cannot be shown is listed with the reason."""
    sections, tables, reasons = [], [], []
    for figure in FIGURES:
        try:
            panels = figure.panels(runs)
        except ConfigError as error:
            reasons.append(f"{error}")
            continue
        title = f"{figure.name.capitalize()}: {figure.title}"
        sections.append(Section(f"figure-{figure.number}", title, figure.says, panels, LEAST))
    for table in TABLES:
        try:
            tables.append(table.table(runs))
        except ConfigError as error:
            reasons.append(f"{error}")
    lead = (
        f"All figures and tables of {SOURCE}, from runs at scale {runs.scale} under condition "
        f"{runs.condition}. Captions summarise the paper's text on each, with its section; the replication "
        f"page has the verdicts on its claims."
    )
    return rendered(
        "paper.html",
        [panel for section in sections for panel in section.panels],
        package="spectrope.study",
        title="The paper's figures and tables",
        lead=lead,
        sections=sections,
        tables=tables,
        reasons=reasons,
    )
