"""Page of all figures and tables of the paper, each with our results next to the published ones."""

from collections.abc import Sequence
from pathlib import Path

from spectrope.core import ConfigError, UnknownNameError, require_type
from spectrope.figures import Drawing, Section, panels_spec, rendered, write_page
from spectrope.lab import CONDITIONS, SCALES
from spectrope.study.page.paper.arms import PaperRuns
from spectrope.study.page.paper.items import FIGURES, SOURCE, TABLES, PaperFigure, figure_of
from spectrope.study.rows import StudyRows

LEAST = 300  # Width of a panel on the page, in pixels.
WIDTH, COLUMNS = 320, 3  # Of a panel in a file, and panels side by side.


def paper_drawing(
    number: int,
    rows: StudyRows,
    *,
    scale: str = "mini",
    condition: str = "controlled",
    seeds: Sequence[int] = range(30),
) -> Drawing:
    """A figure of the paper from the rows of a scale.

    Args:
        number: Its number in the paper.
        rows: The rows of that scale, such as `stored_rows("mini")`.
        scale: Size of models and data.
        condition: "controlled", "described" or "released".
        seeds: Seeds to look for.

    Raises:
        ConfigError: If the paper has no such figure, or there is nothing to draw.
        UnknownNameError: If the scale or the condition is unknown.
    """
    require_type(number, int, "number", "a whole number")
    require_type(rows, StudyRows, "rows", 'rows of a study, such as stored_rows("mini")')
    for name, value, known in (("scale", scale, SCALES), ("condition", condition, CONDITIONS)):
        if value not in known:
            raise UnknownNameError(name, value, known)
    return drawing(figure_of(number), PaperRuns(rows, scale, condition, seeds))


def drawing(figure: PaperFigure, runs: PaperRuns) -> Drawing:
    """A figure of the paper from some runs.

    Raises:
        ConfigError: If there is nothing to draw.
    """
    return Drawing(f"figure-{figure.number}", panels_spec(figure.panels(runs), WIDTH, COLUMNS))


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
