"""Numbers by step as lines of a CSV file, which needs no client."""

import csv
import json
from collections.abc import Mapping
from pathlib import Path

from spectrope.checkpoints.trackers.base import Tracker, unused
from spectrope.core import ConfigError
from spectrope.store import disk_errors


class CsvFile(Tracker, name="csv"):
    """Lines of step, name and value in `metrics.csv`, or in a file with the name of the run; if there is one,
    it is kept, and the new one is numbered."""

    sends, names_files = False, True

    def open(self) -> None:
        """Begin a file, and keep the settings of the run beside it.

        Raises:
            ConfigError: If its settings cannot be written as JSON.
            StoreError: If the folder cannot be written.
        """
        try:
            settings = json.dumps(self.config, indent=2, default=str)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"config must be settings that JSON can hold: {error}.") from None
        path = unused(self.folder, self.run or "metrics", ".csv", ".json")
        file = Path(f"{path}.csv")
        with disk_errors(file):
            self.file = file.open("x", newline="", encoding="utf-8")
            if self.config:
                file.with_suffix(".json").write_text(settings, encoding="utf-8")
        self.lines = csv.writer(self.file)
        self.lines.writerow(("step", "name", "value"))

    def log(self, values: Mapping[str, float], step: int) -> None:
        """A line per number."""
        with disk_errors(Path(self.file.name)):
            self.lines.writerows((step, name, value) for name, value in values.items())
            self.file.flush()

    def close(self) -> None:
        """Close the file."""
        self.file.close()
