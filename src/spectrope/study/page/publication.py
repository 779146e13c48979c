"""Everything that the study publishes: pages with pictures and tables, a notebook and the data card."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from spectrope.figures import write_page
from spectrope.study.claim import chosen_claims
from spectrope.study.claims.tuned import tried_claims
from spectrope.study.conditions import THROWN
from spectrope.study.page.data_card import data_card
from spectrope.study.page.notebook import written_notebook
from spectrope.study.page.page import write_replication
from spectrope.study.rows import StudyRows
from spectrope.study.study import Study


@dataclass(frozen=True, kw_only=True)
class StudyPage:
    """A page that the study publishes.

    Args:
        name: Of the page, without suffix.
        claims: Names or numbers; none for all.
        conditions: Conditions that it tests.
        scale: Size of models and data.
        seeds: Its seeds, counted from the first that a claim has not explored.
    """

    name: str
    claims: tuple[str, ...] = ()
    conditions: tuple[str, ...] = tuple(THROWN)
    scale: str = "mini"
    seeds: tuple[int, ...] = tuple(range(6))

    def write(self, rows: StudyRows, folder: Path) -> Path:
        """Write the page with its pictures and its table.

        Raises:
            StoreError: If a file cannot be written.
        """
        claims = tried_claims(chosen_claims(self.claims), rows, self.scale)
        study = Study(tuple(claims), self.conditions, self.scale, self.seeds)
        return write_replication(study, rows, folder / f"{self.name}.md")


PAGES = (
    StudyPage(name="replication"),
    StudyPage(
        name="replication-fresh",
        claims=("1", "2", "3", "7"),
        conditions=("controlled",),
        seeds=tuple(range(6, 12)),
    ),
    StudyPage(name="replication-mid", scale="mid"),
)
PUBLISHED_SCALES = tuple(dict.fromkeys(page.scale for page in PAGES))
NOTEBOOK, CARD = "figures.ipynb", "data-card.md"


def publish(place: Path, rows: Mapping[str, StudyRows], folder: Path) -> Iterator[Path]:
    """Write every page, the notebook and the data card; the same rows give the same bytes.

    Args:
        place: Folder of the rows.
        rows: Those of each of `PUBLISHED_SCALES`.
        folder: Where the pages go; their pictures go into `images` beside them.

    Yields:
        Each path, once it is written.

    Raises:
        StoreError: If a file cannot be written.
    """
    for page in PAGES:
        yield page.write(rows[page.scale], folder)
    yield write_page(written_notebook(), folder / NOTEBOOK, ".ipynb")
    yield write_page(data_card(place), folder / CARD, ".md")
