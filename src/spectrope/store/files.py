"""Atomic file writes: after a crash a file has either its old or its new content."""

import contextlib
import errno
import io
import json
import os
import platform
import re
import secrets
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from spectrope.core import StoreError, strict_json
from spectrope.store.numbering import METADATA

TEMPORARY = ".tmp-"

_WAYS_OUT = {
    errno.ENOSPC: "the disk is full; free some space and run the same command again",
    errno.EDQUOT: "the disk quota is used up; free some space and run the same command again",
    errno.EROFS: "the file system is read-only; choose another place",
    errno.EACCES: "permission is denied; choose another place",
    errno.EPERM: "permission is denied; choose another place",
    errno.ENOTDIR: "a file stands where a folder should; choose another place",
    errno.EEXIST: "a file stands where a folder should; choose another place",
    errno.EISDIR: "a folder stands where a file should; choose another place",
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


def replace_file(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a temporary file beside `path`, force it to disk, and rename it to `path`.

    A process killed at any moment leaves the old file or the new one.

    Args:
        path: The file.
        write: Writes its whole content to the path that it is given, raising `OSError` where it cannot.

    Raises:
        StoreError: If the disk is full, read-only or forbidden; what `path` held before stays.
    """
    temporary = path.with_name(f"{TEMPORARY}{_host()}-{os.getpid()}-{secrets.token_hex(8)}-{path.name}")
    with disk_errors(path):
        try:
            # Made here and nowhere else: a link that somebody has planted under this name is not followed.
            os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
            write(temporary)
            _flush(temporary)
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
        _flush(path.parent)


def json_content(value: Mapping[str, Any]) -> bytes:
    """A mapping as JSON; a number that is not finite becomes null."""
    return (strict_json(value, indent=2) + "\n").encode()


def parquet_content(frame: pl.DataFrame) -> bytes:
    """A table as Parquet, marked as counting layers and heads from 0.

    It is formatted in memory, since the format's own writer hides why a disk refuses.
    """
    content = io.BytesIO()
    frame.write_parquet(content, metadata=METADATA)
    return content.getvalue()


def write_parquet(path: Path, frame: pl.DataFrame) -> None:
    """Write a table, marked as counting layers and heads from 0, whole or not at all."""
    content = parquet_content(frame)
    replace_file(path, lambda temporary: temporary.write_bytes(content))


def make_folder(path: Path) -> None:
    """Make a folder and those above it, where they are missing, and force their names to disk.

    Raises:
        StoreError: If the disk is full, read-only or forbidden.
    """
    with disk_errors(path):
        missing = [folder for folder in (path, *path.parents) if not folder.exists()]
        path.mkdir(parents=True, exist_ok=True)
        for folder in reversed(missing):
            _flush(folder.parent)


def require_file(path: Path) -> None:
    """Refuse a pipe, a socket or a device, whose reader might wait forever.

    Raises:
        StoreError: If it is one, or missing.
    """
    with disk_errors(path, "read"):
        mode = path.stat().st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise StoreError(f"cannot read {path}: it is no regular file; move it away.")


def read_file(path: Path) -> bytes:
    """The content of a file.

    Raises:
        StoreError: If it is missing, no regular file, or cannot be read.
    """
    require_file(path)
    with disk_errors(path, "read"):
        return path.read_bytes()


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        StoreError: If the file is missing, cut off, or something else.
    """
    try:
        value = json.loads(read_file(path))
    except (ValueError, RecursionError):
        raise StoreError(f"{path} is damaged: it is no JSON.") from None
    if not isinstance(value, dict):
        raise StoreError(f"{path} is damaged: it holds no JSON object.")
    return value


def is_temporary(path: Path) -> bool:
    """Whether a file is a temporary file of `replace_file`."""
    return path.name.startswith(TEMPORARY)


def sweep_temporaries(folder: Path) -> None:
    """Remove temporary files of dead processes of this machine; those of running processes stay."""
    for path in filter(is_temporary, list(folder.iterdir())):
        owner = re.match(rf"{TEMPORARY}{_host()}-(\d+)-", path.name)
        if owner and not _is_alive(int(owner[1])):
            path.unlink(missing_ok=True)


def _host() -> str:
    return re.sub(r"\W", "_", platform.node())


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
