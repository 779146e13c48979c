"""trackio, on this machine unless the address of a server is given."""

import contextlib
import os
from collections.abc import Iterator, Mapping

from spectrope.checkpoints.trackers.base import Tracker, client


class Trackio(Tracker, name="trackio"):
    """A run of trackio; without an address it lies in a folder that `trackio show` reads."""

    def open(self) -> None:
        """Begin a run."""
        os.environ.setdefault("TRACKIO_DIR", str(self.folder.resolve()))
        trackio = client("trackio", "trackio")
        with _without_hub():
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


@contextlib.contextmanager
def _without_hub() -> Iterator[None]:
    """While the block runs, the client does not send the hub's token to the hub to ask whose it is."""
    constants = client("huggingface_hub.constants", "huggingface_hub")
    before, constants.HF_HUB_OFFLINE = constants.HF_HUB_OFFLINE, True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before
