"""The check of a folder of runs against the digests of its files."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from spectrope.console import Shown
from spectrope.core import SpectropeError, require_type
from spectrope.store import CheckedFolder, Run, check_folders, set_aside

SCHEMA = {"run": pl.String, "state": pl.String, "trained again as": pl.String, "reason": pl.String}


@dataclass(frozen=True, repr=False)
class CheckedRuns(Shown):
    """What a check of a folder of runs found.

    Args:
        folders: Every folder that is or should be a run, by name.
        labels: Experiment of each damaged run; "unknown" if its configuration is also damaged.
        moved: Folders to which damaged runs were moved.
        in_use: Damaged runs that stay, because another process trains or measures them.
    """

    folders: tuple[CheckedFolder, ...]
    labels: Mapping[Path, str]
    moved: tuple[Path, ...] = ()
    in_use: tuple[Path, ...] = ()

    def count(self, state: str) -> int:
        """The number of folders in a state: verified, unverified, damaged or no run."""
        return sum(one.state == state for one in self.folders)

    def to_frame(self) -> pl.DataFrame:
        """One row per folder: `run`, `state`, the experiment of a damaged run, and the `reason`."""
        rows = [(one.path.name, one.state, self.labels.get(one.path, ""), one.reason) for one in self.folders]
        return pl.DataFrame(rows, schema=SCHEMA, orient="row")

    def parts(self) -> Iterator[str | tuple[str, pl.DataFrame]]:
        verified, unverified, damaged = map(self.count, ("verified", "unverified", "damaged"))
        without = f", {unverified} with files that have no digest" if unverified else ""
        others = self.count("no run")
        more = f" Left alone, as no run: {others} other folder{'s' * (others > 1)}." if others else ""
        runs = len(self.folders) - others
        yield f"{runs} folder{'s' * (runs != 1)}: {verified} verified{without}, {damaged} damaged.{more}"
        if damaged:
            yield "", self.to_frame().filter(pl.col("state") == "damaged").drop("state")
        if self.moved:
            place = self.moved[0].parent
            yield f"Moved to {place}: {len(self.moved)}. The command that made a run trains it again."
        if self.in_use:
            names = ", ".join(path.name for path in self.in_use)
            yield f"In use by another process, and left where they are: {names}."


def check_runs(folder: str | Path = "runs", *, repair: bool = False) -> CheckedRuns:
    """Compare every file of every run in a folder with its stored digest.

    Args:
        folder: Folder of the run folders.
        repair: Whether to move damaged runs into `.damaged` in that folder, so that the command that made
            them trains them again.

    Raises:
        StoreError: If there is no such folder, or a damaged run cannot be moved.

    Example:
        >>> import spectrope as sp
        >>> _ = sp.train("nope", epochs=1, n_examples=60, root="my-runs", watch=sp.unwatched)
        >>> print(sp.check_runs("my-runs"))
        1 folder: 1 verified, 0 damaged.
    """
    require_type(folder, (str, Path), "folder", "the path of a folder")
    checked = check_folders(Path(folder))
    damaged = [one.path for one in checked if one.state == "damaged"]
    labels = {path: _label(path) for path in damaged}
    places = {path: set_aside(path) for path in damaged} if repair else {}
    moved = tuple(place for place in places.values() if place is not None)
    in_use = tuple(path for path, place in places.items() if place is None)
    return CheckedRuns(tuple(checked), labels, moved, in_use)


def _label(path: Path) -> str:
    from spectrope.lab import read_experiment  # Loads torch, which a check of sound folders does without.

    try:
        return read_experiment(Run(path).config).label
    except SpectropeError:
        return "unknown"
