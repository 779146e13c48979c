"""Verify run folders against their digests, and set damaged ones aside."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from spectrope.core import StoreError
from spectrope.store.digests import remove
from spectrope.store.files import move_aside
from spectrope.store.folders import survey
from spectrope.store.locks import held_if_free
from spectrope.store.run import CONFIG, LOCK, SET_ASIDE

RUN_ID = re.compile(r"[0-9a-f]{12}")


@dataclass(frozen=True)
class CheckedFolder:
    """Result of reading every byte of a run folder.

    Args:
        path: The folder.
        state: "verified" if every file matches its digest, "unverified" if nothing is damaged and a file
            has no digest, as in folders of version 0.1.0, and "no run" for a folder that is not named like
            one and has no configuration.
        reason: What is damaged, or why it is no run.
    """

    path: Path
    state: Literal["verified", "unverified", "damaged", "no run"]
    reason: str = ""


def check_folders(root: Path) -> list[CheckedFolder]:
    """Read every file of every run under `root` and compare it with its digest.

    Raises:
        StoreError: If `root` is no folder or cannot be read.
    """
    runs, broken = survey(root)
    checked = [
        CheckedFolder(path, "damaged" if _is_run(path) else "no run", reason) for path, reason in broken
    ]
    for run in runs:
        try:
            checked.append(CheckedFolder(run.path, "verified" if run.verify() else "unverified"))
        except StoreError as error:
            checked.append(CheckedFolder(run.path, "damaged", str(error)))
    return sorted(checked, key=lambda one: one.path)


def _is_run(path: Path) -> bool:
    """Whether a folder was made for a run: by its name, or by its configuration."""
    try:
        return RUN_ID.fullmatch(path.name) is not None or (path / CONFIG).exists()
    except OSError:  # Of a folder that may not be looked into, such as `lost+found`.
        return False


def set_aside(path: Path) -> Path | None:
    """Move a folder into `.damaged` beside it, where it is not read as a run.

    Returns:
        Its new path, or None while another process trains or measures the run, which stays where it is.

    Raises:
        StoreError: If it cannot be moved.
    """
    with held_if_free(path / LOCK) as free:
        if not free:
            return None
        target = move_aside(path, path.parent / SET_ASIDE, path.name)
        remove(target / LOCK)
        return target
