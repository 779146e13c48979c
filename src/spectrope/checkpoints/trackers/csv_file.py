"""Numbers by step as lines of a CSV file, which needs no client."""

import csv
import json
from collections.abc import Mapping
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import TextIO

from spectrope.checkpoints.trackers.base import Tracker
from spectrope.core import ConfigError


class CsvFile(Tracker, name="csv"):
    """Lines of step, name and value in `metrics.csv`, or in a file with the name of the run; if there is one,
    it is kept, and the new one is numbered."""

    sends = False

    def open(self) -> None:
        """Begin a file, and keep the settings of the run beside it.

        Raises:
            ConfigError: If the run's name is no name of a file.
        """
        name = self.run or "metrics"
        if Path(name).name != name:
            raise ConfigError(f"run names the tracker's file, so it must be a plain name; got {name!r}.")
        self.file = _new_file(self.folder, name)
        if self.config:
            settings = json.dumps(self.config, indent=2, default=str)
            Path(self.file.name).with_suffix(".json").write_text(settings, encoding="utf-8")
        self.lines = csv.writer(self.file)
        self.lines.writerow(("step", "name", "value"))

    def log(self, values: Mapping[str, float], step: int) -> None:
        """A line per number."""
        self.lines.writerows((step, name, value) for name, value in values.items())
        self.file.flush()

    def close(self) -> None:
        """Close the file."""
        self.file.close()


def _new_file(folder: Path, name: str) -> TextIO:
    """A file that was not there, whatever other processes begin at the same time."""
    for number in count(1):
        path = folder / (f"{name}.csv" if number == 1 else f"{name}-{number}.csv")
        with suppress(FileExistsError):
            return path.open("x", newline="", encoding="utf-8")
    raise AssertionError
