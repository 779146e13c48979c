"""Base class of trackers, which record numbers by step in an experiment tracker."""

import contextlib
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any, ClassVar

from spectrope.core import ConfigError, Registered, Registry, UnsupportedError
from spectrope.store import disk_errors

TRACKERS: Registry[type["Tracker"]] = Registry("tracker", "spectrope.checkpoints.trackers", "Tracker")


class Tracker(Registered, ABC):
    """Record numbers by step in an experiment tracker, through its own client. A subclass registers its name
    (`class Mine(Tracker, name="mine")`). The client reads API keys from the environment; they are neither
    accepted nor stored here.

    Args:
        folder: Where the client writes.
        project: Name of the project or experiment.
        run: Name of the run; None lets the client choose.
        config: Settings of the run, to be kept with it.
        url: Address to send to; None sends nothing and only writes to the folder.

    Raises:
        ConfigError: If it cannot send to an address, or a name is no plain name.
        StoreError: If the folder cannot be written.
    """

    registry = TRACKERS
    kind: ClassVar[str]
    sends: ClassVar[bool] = True  # Whether it can send to an address.
    names_files: ClassVar[bool] = False  # Whether names of projects and runs are those of files.

    def __init__(
        self,
        folder: str | Path = "tracking",
        *,
        project: str = "spectrope",
        run: str | None = None,
        config: Mapping[str, Any] | None = None,
        url: str | None = None,
    ) -> None:
        if url is not None and not self.sends:
            raise ConfigError(f"tracker {self.kind!r} writes files alone; got url={url!r}.")
        for what, named in (("project", project), ("run", run)) if self.names_files else ():
            if named is not None and (not named or Path(named).name != named or not named.isprintable()):
                raise ConfigError(
                    f"{what} names files of the tracker, so it must be a plain name; got {named!r}."
                )
        self.folder, self.project, self.run, self.url = Path(folder), project, run, url
        self.config = dict(config or {})
        with disk_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        self.open()

    @abstractmethod
    def open(self) -> None:
        """Begin a run."""

    @abstractmethod
    def log(self, values: Mapping[str, float], step: int) -> None:
        """Record numbers of one step, by name."""

    @abstractmethod
    def close(self) -> None:
        """End the run; what was recorded is then on disk or sent."""


def unused(folder: Path, name: str, *suffixes: str) -> Path:
    """The first path of this name, else numbered, that is not there, nor with any of these suffixes."""
    paths = (folder / (name if number == 1 else f"{name}-{number}") for number in count(1))
    return next(path for path in paths if not any(Path(f"{path}{suffix}").exists() for suffix in suffixes))


@contextlib.contextmanager
def unset(*names: str) -> Iterator[None]:
    """Take variables out of the environment while the block runs."""
    kept = {name: os.environ.pop(name) for name in names if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(kept)


def client(module: str, package: str) -> Any:
    """The module of a tracker's own client.

    Raises:
        UnsupportedError: If it is not installed.
    """
    try:
        return import_module(module)
    except ImportError:
        raise UnsupportedError(
            f"this tracker needs {package}, which is not installed; pip install 'spectrope[trackers]'."
        ) from None


def tracker(name: str, folder: str | Path = "tracking", **options: Any) -> Tracker:
    """Begin a run of an experiment tracker.

    Args:
        name: "csv", "tensorboard", "wandb", "mlflow", "trackio", or a registered one.
        folder: Where the client writes.
        options: `project`, `run`, `config` and `url`; without a `url` nothing is sent anywhere.

    Raises:
        UnknownNameError: If there is no such tracker.
        UnsupportedError: If its client is not installed.
        ConfigError: If it has no such option.

    Example:
        >>> import spectrope as sp
        >>> lines = sp.tracker("csv", "numbers")
        >>> lines.log({"loss": 0.5}, step=1)
        >>> lines.close()
    """
    known = {"project", "run", "config", "url"}
    if unknown := sorted(options.keys() - known):
        raise ConfigError(f"tracker has no argument {unknown[0]!r}; it takes {', '.join(sorted(known))}.")
    return TRACKERS[name](folder, **options)
