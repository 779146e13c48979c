"""Temporary folders; those of killed processes are removed later."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from spectrope.store.errors import disk_errors
from spectrope.store.locks import take_lock

PREFIX = ".spectrope-scratch-"  # Which nobody else gives a folder that is to be kept.

FOLDER = (
    os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_DIRECTORY", 0)
)  # Windows has only the first.


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    """A new temporary folder, readable only by its owner, which is removed after the block.

    Such folders of processes that were killed are removed first.

    Raises:
        StoreError: If the system has no folder for temporary files, or none can be made there.
    """
    folder, handle = _made()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(handle)


def _made() -> tuple[Path, int]:
    with disk_errors(Path("a temporary folder")):
        place = Path(tempfile.gettempdir())
        _sweep(place)
        while True:
            folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=place))
            handle = os.open(folder, os.O_RDONLY)
            if take_lock(handle) is not False and folder.exists():
                return folder, handle
            os.close(handle)  # Another process has swept it before it was locked.


def _sweep(place: Path) -> None:
    for folder in place.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):  # Of another user, or removed by another process.
            handle = os.open(
                folder, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_DIRECTORY", 0)
            )
            try:
                if os.fstat(handle).st_uid == os.getuid() and take_lock(handle):
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(handle)
