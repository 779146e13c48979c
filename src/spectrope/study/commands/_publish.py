"""`spectrope claims publish`: all pages of the study from the stored results."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from spectrope.console import JsonOption, print_json, say
from spectrope.core import ConfigError
from spectrope.study import page
from spectrope.study.commands._common import Results, existing_rows
from spectrope.study.page.publication import PUBLISHED_SCALES
from spectrope.study.study import RESULTS, place_of_rows

PUBLISHED = Path("docs/explanation")


@dataclass(frozen=True, kw_only=True)
class PublishStudy:
    """Write all pages of the study with their figures, a notebook that draws these, and the data card.

    Examples:
    $ spectrope claims publish
    $ spectrope claims publish --out pages
    """

    out: Annotated[
        Path | None, tyro.conf.arg(help=f"Folder of the pages (default in a clone: {PUBLISHED}).")
    ] = None
    rows: Results = RESULTS
    json: JsonOption = False

    def run(self) -> None:
        """Write the pages, and print each path."""
        if self.out is None and not PUBLISHED.is_dir():
            raise ConfigError(f"no folder {PUBLISHED} here; choose one for the pages with --out FOLDER.")
        if self.out is not None and self.out.exists() and not self.out.is_dir():
            raise ConfigError(f"--out {self.out} is a file; name a folder for the pages.")
        rows = {scale: existing_rows(self.rows, scale) for scale in PUBLISHED_SCALES}
        place = place_of_rows(self.rows) or self.rows
        if lacking := [scale for scale in rows if not (place / f"{scale}.jsonl").exists()]:
            raise ConfigError(f"--rows {place} has no {lacking[0]}.jsonl, whose page would be empty.")
        written = []
        for path in page.publish(place, rows, self.out or PUBLISHED):
            written.append(str(path.resolve()))
            say(f"Wrote {path.resolve()}")
        if self.json:
            print_json({"paths": written})
