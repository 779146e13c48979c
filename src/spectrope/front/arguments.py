"""Validate the arguments of the public functions."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spectrope.core import ConfigError, require_type


def require_whole(least: int, **numbers: object) -> None:
    """Require a whole number that is large enough, or None for the default.

    Raises:
        ConfigError: One line with the argument's name.
    """
    for name, value in numbers.items():
        if value is None:
            continue
        require_type(value, int, name, "a whole number")
        if isinstance(value, int) and value < least:
            raise ConfigError(f"{name} must be at least {least}; got {value}.")


def require_callback(watch: object) -> None:
    """Require a callable, or None for the default display.

    Raises:
        ConfigError: If it is neither.
    """
    if watch is not None and not callable(watch):
        raise ConfigError(f"watch must be a function of the progress, such as sp.unwatched; got {watch!r}.")


def as_folder(root: str | Path) -> Path:
    """The folder of the runs.

    Raises:
        ConfigError: If it is no path.
    """
    require_type(root, (str, Path), "root", "the path of a folder")
    return Path(root)


def as_settings(settings: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Fields by name.

    Raises:
        ConfigError: If these are none, or one is an argument of its own.
    """
    if settings is not None:
        require_type(settings, Mapping, "settings", "fields by name, such as {'learning_rate': 1e-3}")
        for name in settings:
            require_type(name, str, "the name of a setting", "text")
        if "seed" in settings:
            raise ConfigError(
                f"settings must leave the seed out; got {settings['seed']!r}. It is an argument: seed of "
                "train, seeds of compare."
            )
    return settings or {}
