"""Numbers by step as lines of a CSV file, which needs no client."""

import csv
from collections.abc import Mapping

from spectrope.checkpoints.trackers.base import Tracker


class CsvFile(Tracker, name="csv"):
    """Lines of step, name and value in `metrics.csv`."""

    sends = False

    def open(self) -> None:
        """Begin the file."""
        self.file = (self.folder / "metrics.csv").open("w", newline="", encoding="utf-8")
        self.lines = csv.writer(self.file)
        self.lines.writerow(("step", "name", "value"))

    def log(self, values: Mapping[str, float], step: int) -> None:
        """A line per number."""
        self.lines.writerows((step, name, value) for name, value in values.items())
        self.file.flush()

    def close(self) -> None:
        """Close the file."""
        self.file.close()
