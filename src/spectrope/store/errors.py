"""Convert errors of the operating system into one-line messages that say what to do."""

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path

from spectrope.core import StoreError

_WAYS_OUT = {
    errno.ENOSPC: "the disk is full; free some space and run the same command again",
    errno.EDQUOT: "the disk quota is used up; free some space and run the same command again",
    errno.EROFS: "the file system is read-only; choose another place",
    errno.EACCES: "permission is denied; choose another place",
    errno.EPERM: "permission is denied; choose another place",
    errno.ENOTDIR: "a file stands where a folder should; choose another place",
    errno.EEXIST: "a file stands where a folder should; choose another place",
    errno.EISDIR: "a folder exists where a file should be; choose another place",
}


@contextlib.contextmanager
def disk_errors(path: Path, action: str = "write") -> Iterator[None]:
    """Turn errors of the operating system into a one-line `StoreError` that says what to do.

    Args:
        path: What is read or written.
        action: "read" or "write".
    """
    try:
        yield
    except OSError as error:
        reason = _WAYS_OUT.get(error.errno or 0, error.strerror or str(error))
        raise StoreError(f"cannot {action} {path}: {reason}.") from error
