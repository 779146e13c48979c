"""Version and commit of this package."""

import subprocess
from importlib.metadata import version
from pathlib import Path

__version__ = version("spectrope")
PACKAGE = Path(__file__).parents[1]


def commit(package: Path = PACKAGE) -> str:
    """The commit of a package's own repository, or this package's version if there is no repository.

    The commit is followed by `-dirty` if a file of the package has been changed or added. Other files of the
    repository do not count: results that a study appends do not change the code that computes the next ones.

    Args:
        package: Folder of the package.
    """

    def git(*words: str) -> str:
        command = ("git", "-C", str(package), *words)
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", "__init__.py")
        changed = git("status", "--porcelain", "--untracked-files=all", "--", ".")
        return git("rev-parse", "--short=12", "HEAD") + ("-dirty" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return f"version {__version__}"
