"""trackio, on this machine unless the address of a server is given."""

import os
from collections.abc import Mapping
from pathlib import Path

from spectrope.checkpoints.adapters.hub import without_hub
from spectrope.checkpoints.trackers.base import Tracker, client, unset
from spectrope.core import ConfigError

ADDRESSES = ("TRACKIO_SERVER_URL", "TRACKIO_SPACE_ID", "TRACKIO_WEBHOOK_URL")  # Where it would send unasked.


class Trackio(Tracker, name="trackio"):
    """A run of trackio; without an address it lies in a folder that `trackio show` reads."""

    names_files = True

    def open(self) -> None:
        """Begin a run.

        Raises:
            ConfigError: If the client already writes to another folder.
        """
        wanted = self.folder.resolve()
        os.environ.setdefault("TRACKIO_DIR", str(wanted))
        trackio = client("trackio", "trackio")
        used = Path(client("trackio.utils", "trackio").TRACKIO_DIR).resolve()
        if self.url is None and used != wanted:  # The client chooses its folder once, when it is imported.
            raise ConfigError(
                f"trackio writes to {used} in this process, and not to {wanted}; name that folder, or unset "
                "TRACKIO_DIR and begin a new process."
            )
        with without_hub(), unset(*ADDRESSES):
            self.logged = trackio.init(
                project=self.project,
                name=self.run,
                config=self.config,
                server_url=self.url,
                embed=False,
                auto_log_cpu=False,
                auto_log_gpu=False,
            )

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Numbers of one step."""
        self.logged.log(dict(values), step=step)

    def close(self) -> None:
        """End the run."""
        self.logged.finish()
