"""Locks of the operating system, which it releases when their owner dies.

A lock belongs to an open file. Reused process ids, host names shared by two machines and jumping clocks
therefore cannot make a dead owner look alive, or a live one dead. A suspended process keeps its locks.
"""

import contextlib
import errno
import os
import platform
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

from spectrope.core import Interrupted, SpectropeWarning, Stop
from spectrope.store.errors import disk_errors

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

SECONDS_BETWEEN_LOOKS = 0.2
UNSUPPORTED = {errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.ENOLCK, errno.EINVAL}


def take_lock(handle: int, *, wait: bool = False) -> bool | None:
    """Take the lock of an open file, which is released when the file is closed.

    Args:
        handle: Descriptor of the file, or of a folder.
        wait: Whether to wait while another process holds it.

    Returns:
        Whether it was taken; None where the file system has no locks.
    """
    if fcntl is None:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno in UNSUPPORTED:
            return None
        raise
    return True


@contextlib.contextmanager
def held(path: Path, what: str, stop: Stop) -> Iterator[None]:
    """Create and hold a lock file while the block runs, and remove it afterwards.

    While another process holds it, a warning names that process, once, and this one waits. Where the file
    system has no locks, nothing is waited for.

    Args:
        path: The lock file.
        what: What is locked, to begin the warning.
        stop: Called while waiting.

    Raises:
        Interrupted: If asked to stop while waiting.
        StoreError: If the lock file cannot be made.
    """
    told = False
    while (handle := _taken(path)) is None:
        if not told:
            message = f"{what} is in use by {_owner(path)}; waiting until it is free."
            warnings.warn(message, SpectropeWarning, stacklevel=2)
            told = True
        if stop():
            raise Interrupted(f"stopped while {what} was in use by another process.")
        time.sleep(SECONDS_BETWEEN_LOOKS)
    with _released(path, handle):
        yield


@contextlib.contextmanager
def held_if_free(path: Path) -> Iterator[bool]:
    """Hold a lock file while the block runs, if no other process does, and say whether it is held.

    Raises:
        StoreError: If the lock file cannot be made.
    """
    if (handle := _taken(path)) is None:
        yield False
    else:
        with _released(path, handle):
            yield True


@contextlib.contextmanager
def _released(path: Path, handle: int) -> Iterator[None]:
    """Remove a lock file after the block, and release its lock. One of the same name that another process has
    made meanwhile, after the folder was moved, stays."""
    try:
        yield
    finally:
        with contextlib.suppress(OSError):  # A lock file that stays behind is not locked.
            if _is_at(path, handle):
                path.unlink(missing_ok=True)
        os.close(handle)


def _taken(path: Path) -> int | None:
    """The descriptor of the lock file once it is locked, or None while another process holds it."""
    with disk_errors(path):
        handle = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)
        try:
            if take_lock(handle) is not False and _is_at(path, handle):
                os.ftruncate(handle, 0)
                os.pwrite(handle, f"process {os.getpid()} on {platform.node()}".encode(), 0)
                return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)
        return None


def _is_at(path: Path, handle: int) -> bool:
    """Whether a path still is that of an open file, which its last owner may have removed."""
    try:
        return os.path.samestat(path.stat(), os.fstat(handle))
    except FileNotFoundError:
        return False


def _owner(path: Path) -> str:
    try:
        return path.read_text(errors="replace") or "another process"
    except OSError:
        return "another process"
