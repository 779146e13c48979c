"""Weights & Biases, offline unless an address is given."""

import os
from collections.abc import Mapping

from spectrope.checkpoints.trackers.base import Tracker, client


class WeightsAndBiases(Tracker, name="wandb"):
    """A run of Weights & Biases; without an address it is kept offline, and `wandb sync` sends it later.

    The client reads its key from `WANDB_API_KEY`.
    """

    def open(self) -> None:
        """Begin a run."""
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        wandb = client("wandb", "wandb")
        quiet = {"console": "off", "silent": True, "disable_git": True, "disable_code": True}
        apart = {"x_disable_stats": True, "x_disable_meta": True}
        address = {} if self.url is None else {"base_url": self.url}
        self.logged = wandb.init(
            project=self.project,
            name=self.run,
            dir=str(self.folder),
            config=self.config,
            reinit="create_new",  # A run of the caller's own stays as it is.
            mode="offline" if self.url is None else "online",
            settings=wandb.Settings(**quiet, **apart, **address),
        )

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Numbers of one step."""
        self.logged.log(dict(values), step=step)

    def close(self) -> None:
        """End the run."""
        self.logged.finish()
