"""Certificates in a folder, and their names as they are printed."""

from pathlib import Path


def certificates_in(folder: Path) -> list[Path]:
    """The files of a folder that may be certificates, by name."""
    return sorted(path for path in folder.iterdir() if path.suffix.lower() == ".json")


def shown(path: Path) -> str:
    """The name of a file, quoted if it holds a character that would not be printed as itself."""
    return path.name if path.name.isprintable() else ascii(path.name)
