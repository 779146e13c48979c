"""TensorBoard, through the writer of its own package."""

import json
from collections.abc import Mapping

from spectrope.checkpoints.trackers.base import Tracker, client, unused


class TensorBoard(Tracker, name="tensorboard"):
    """Event files, which `tensorboard --logdir FOLDER` shows; a second run of a name is numbered."""

    sends, names_files = False, True

    def open(self) -> None:
        """Begin a file of events."""
        summary = client("tensorboard.summary", "tensorboard")
        place = unused(self.folder / self.project, self.run or "run", "")
        self.writer = summary.Writer(str(place))
        if self.config:
            (place / "config.json").write_text(
                json.dumps(self.config, indent=2, default=str), encoding="utf-8"
            )

    def log(self, values: Mapping[str, float], step: int) -> None:
        """A scalar per number."""
        for name, value in values.items():
            self.writer.add_scalar(name, value, step)

    def close(self) -> None:
        """Write what is left."""
        self.writer.flush()
        self.writer.close()
