"""Version and commit of this package."""

import subprocess
from importlib.metadata import version
from pathlib import Path

__version__ = version("spectrope")


def commit() -> str:
    """The commit of this package's own repository, or its version where it is installed without one."""
    here = Path(__file__)

    def git(*words: str) -> str:
        command = ("git", "-C", str(here.parent), *words)
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", here.name)
        return git("describe", "--always", "--dirty", "--abbrev=12")
    except (OSError, subprocess.CalledProcessError):
        return f"version {__version__}"
