"""Files that are either the old ones or the new ones, whatever moment a process dies at."""

import contextlib
import errno
import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from spectrope.core.errors import StoreError

TEMPORARY = ".tmp-"

_WAYS_OUT = {
    errno.ENOSPC: "the disk is full; free some space and run the same command again",
    errno.EDQUOT: "the disk quota is used up; free some space and run the same command again",
    errno.EROFS: "the file system is read-only; choose another folder with --runs",
    errno.EACCES: "permission is denied; choose another folder with --runs",
    errno.EPERM: "permission is denied; choose another folder with --runs",
    errno.ENOTDIR: "a file stands where a folder should; choose another folder with --runs",
    errno.EEXIST: "a file stands where a folder should; choose another folder with --runs",
}


@contextlib.contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn what the operating system refuses into a `StoreError` of one line with the way out."""
    try:
        yield
    except OSError as error:
        reason = _WAYS_OUT.get(error.errno or 0, error.strerror or str(error))
        raise StoreError(f"cannot write {path}: {reason}.") from error


def replace_file(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a temporary file beside `path`, force it to disk, and rename it to `path`.

    Raises:
        StoreError: If the disk is full, read-only or forbidden; what `path` held before stays.
    """
    temporary = path.with_name(f"{TEMPORARY}{os.getpid()}-{path.name}")
    with disk_errors(path):
        try:
            write(temporary)
            _flush(temporary)
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
        _flush(path.parent)


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write a mapping as JSON, whole or not at all."""
    text = json.dumps(value, indent=2, allow_nan=False) + "\n"
    replace_file(path, lambda temporary: temporary.write_text(text))


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        StoreError: If the file is missing, cut off, or something else.
    """
    try:
        value = json.loads(path.read_text())
    except FileNotFoundError:
        raise StoreError(f"{path} is missing.") from None
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}.") from None
    except ValueError:
        raise StoreError(f"{path} is damaged: it is no JSON.") from None
    if not isinstance(value, dict):
        raise StoreError(f"{path} is damaged: it holds no JSON object.")
    return value


def sweep_temporaries(folder: Path) -> None:
    """Remove what killed processes left half-written; files of living processes stay."""
    for path in folder.glob(f"{TEMPORARY}*"):
        owner = path.name.removeprefix(TEMPORARY).split("-")[0]
        if not (owner.isdigit() and Path(f"/proc/{owner}").exists()):
            path.unlink(missing_ok=True)


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
