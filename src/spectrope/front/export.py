"""Export the results of a run to an experiment tracker."""

import contextlib
import math
import warnings
from collections.abc import Collection, Mapping
from typing import Any

from spectrope.checkpoints.trackers import Tracker
from spectrope.core import SpectropeWarning, require_type
from spectrope.lab import has_diverged
from spectrope.store import Run

KEYS = ("step", "split")


def export(run: Run, to: Tracker) -> None:
    """Send a run's learning curves and final scores to a tracker, and end the tracker's run.

    The curves are the columns of the table "metrics", per split, at every evaluated step. The scores are the
    numeric values of the manifest, with names under "final/", and "final/diverged", 0 or 1. Values that are
    not finite, as after divergence, are left out with a warning.

    Args:
        run: A finished run.
        to: Where they go, such as `sp.tracker("wandb", "tracking", run=run.id, config=run.config)`.

    Raises:
        ConfigError: If the first argument is no run.
        StoreError: If the run is unfinished, or has no such table.

    Example:
        >>> import spectrope as sp
        >>> run = sp.train("rope", "distance", epochs=1, n_examples=60, watch=sp.unwatched)
        >>> sp.export(run, sp.tracker("csv", "numbers", run=run.id))
    """
    require_type(run, Run, "run", "a run, as sp.runs and sp.train return them")
    with contextlib.closing(to):
        manifest, metrics = run.manifest, run.frame("metrics")
        curves = [
            (row["step"], _numbers(f"{row['split']}/", row, leave=KEYS))
            for row in metrics.iter_rows(named=True)
        ]
        diverged = has_diverged(manifest)
        final = _numbers("final/", manifest) | {"final/diverged": float(diverged)}
        sent = [*curves, (max((step for step, _ in curves), default=0), final)]
        for step, numbers in sent:
            to.log({name: value for name, value in numbers.items() if math.isfinite(value)}, step)
    if diverged or not all(math.isfinite(value) for _, numbers in sent for value in numbers.values()):
        warnings.warn(
            f"run {run.id}: values that are not finite were not sent.", SpectropeWarning, stacklevel=2
        )


def _numbers(prefix: str, values: Mapping[str, Any], leave: Collection[str] = ()) -> dict[str, float]:
    """The numbers among values, under names that begin alike."""
    return {
        f"{prefix}{name}": float(value)
        for name, value in values.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and name not in leave
    }
