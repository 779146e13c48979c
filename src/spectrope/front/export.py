"""Export the results of a run to an experiment tracker."""

import math
from collections.abc import Collection, Mapping
from typing import Any

from spectrope.checkpoints.trackers import Tracker
from spectrope.store import Run

KEYS = ("step", "split")


def export(run: Run, to: Tracker) -> None:
    """Send a run's learning curves and final scores to a tracker, and end the tracker's run.

    The curves are the columns of the table "metrics", per split, at every evaluated step. The scores are the
    numeric values of the manifest, with names under "final/".

    Args:
        run: A finished run.
        to: Where they go, such as `sp.tracker("wandb", "tracking", run=run.id, config=run.config)`.

    Raises:
        StoreError: If the run has no such table.

    Example:
        >>> import spectrope as sp
        >>> run = sp.train("rope", "distance", epochs=1, n_examples=60, watch=sp.unwatched)
        >>> sp.export(run, sp.tracker("csv", "numbers", run=run.id))
    """
    last = 0
    for row in run.frame("metrics").iter_rows(named=True):
        last = max(last, row["step"])
        to.log(_numbers(f"{row['split']}/", row, leave=KEYS), row["step"])
    to.log(_numbers("final/", run.manifest or {}), last)
    to.close()


def _numbers(prefix: str, values: Mapping[str, Any], leave: Collection[str] = ()) -> dict[str, float]:
    """The finite numbers among values, under names that begin alike."""
    numbers = {
        name: float(value)
        for name, value in values.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and name not in leave
    }
    return {f"{prefix}{name}": value for name, value in numbers.items() if math.isfinite(value)}
