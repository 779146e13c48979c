"""Numbers by step as lines of a CSV file, which needs no client."""

import csv
import json
from collections.abc import Mapping
from itertools import count
from pathlib import Path

from spectrope.checkpoints.trackers.base import Tracker
from spectrope.core import ConfigError


class CsvFile(Tracker, name="csv"):
    """Lines of step, name and value in `metrics.csv`, or in a file with the name of the run; if there is one,
    it is kept, and the new one is numbered."""

    sends = False

    def open(self) -> None:
        """Begin a file, and keep the settings of the run beside it.

        Raises:
            ConfigError: If the run's name is no name of a file, or its settings cannot be written as JSON.
        """
        name = self.run or "metrics"
        if Path(name).name != name or not name.isprintable():
            raise ConfigError(f"run names the tracker's file, so it must be a plain name; got {name!r}.")
        try:
            settings = json.dumps(self.config, indent=2, default=str)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"config must be settings that JSON can hold: {error}.") from None
        path = _unused(self.folder, name)
        self.file = path.open("x", newline="", encoding="utf-8")
        if self.config:
            path.with_suffix(".json").write_text(settings, encoding="utf-8")
        self.lines = csv.writer(self.file)
        self.lines.writerow(("step", "name", "value"))

    def log(self, values: Mapping[str, float], step: int) -> None:
        """A line per number."""
        self.lines.writerows((step, name, value) for name, value in values.items())
        self.file.flush()

    def close(self) -> None:
        """Close the file."""
        self.file.close()


def _unused(folder: Path, name: str) -> Path:
    """The first file of this name, else numbered, that is not there, nor settings beside it."""
    names = (name if number == 1 else f"{name}-{number}" for number in count(1))
    paths = (folder / f"{one}.csv" for one in names)
    return next(path for path in paths if not path.exists() and not path.with_suffix(".json").exists())
