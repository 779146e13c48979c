"""Certificates in a folder, and their names as they are printed."""

import re
from pathlib import Path


def certificates_in(folder: Path) -> list[Path]:
    """The files of a folder that may be certificates, by name."""
    return sorted(path for path in folder.iterdir() if path.suffix.lower() == ".json")


def shown(name: str) -> str:
    """The name of a file, quoted unless it is a plain one, so that it cannot be taken for a result."""
    return name if re.fullmatch(r"[\w.-]+", name) else ascii(name)
