"""Files that pages and figures can be written to, checked before anything is computed."""

from pathlib import Path
from typing import Literal, cast, get_args

from spectrope.core import ConfigError
from spectrope.store import check_place

Format = Literal[".png", ".svg", ".pdf", ".html", ".json"]  # Suffix of a figure's file.


def check_figure(path: Path) -> Format:
    """Check that a figure can be saved as this file, and return its format.

    Raises:
        ConfigError: If its suffix is none of `Format`.
        StoreError: If it lies in a run's folder, or cannot be written.
    """
    suffix, formats = path.suffix.lower(), get_args(Format)
    if suffix not in formats:
        raise ConfigError(f"a figure is saved as {', '.join(formats)}; got {path.name!r}.")
    check_place(path)
    return cast(Format, suffix)


def check_page(path: Path, suffix: str = ".html") -> None:
    """Check that a page can be written to this file.

    Raises:
        ConfigError: If its suffix is wrong.
        StoreError: If it lies in a run's folder, or cannot be written.
    """
    if path.suffix.lower() != suffix:
        raise ConfigError(f"this page is saved as {suffix}; got {path.name!r}.")
    check_place(path)
