"""Digests of the files of a run, stored next to them, so that damage is detected when a file is read.

The digests of `metrics.parquet` are in `metrics.parquet.sha256`, in the format of `sha256sum`: first that of
the content written last, then that of the content which it replaced. Digests are written before the file, so
that a process killed at any moment leaves a file that matches one of the two.
"""

import hashlib
import re
from pathlib import Path

from spectrope.core import StoreError
from spectrope.store.errors import disk_errors
from spectrope.store.files import flush, read_file, replace_file, require_file

SUFFIX = ".sha256"


def digest_file(path: Path) -> Path:
    """Where the digests of a file are kept."""
    return path.with_name(path.name + SUFFIX)


def write_verified(path: Path, content: bytes) -> None:
    """Write a file and its digest, whole or not at all.

    Raises:
        StoreError: If the disk is full, read-only or not writable; the previous content of `path` is kept.
    """
    digests = [hashlib.sha256(content).hexdigest()]
    if path.exists():
        digests += _replaced(path)
    lines = "".join(f"{digest}  {path.name}\n" for digest in dict.fromkeys(digests))
    replace_file(digest_file(path), lambda temporary: temporary.write_bytes(lines.encode()))
    replace_file(path, lambda temporary: temporary.write_bytes(content))


def _replaced(path: Path) -> list[str]:
    """The digest of the present content of a file, unless that is damaged."""
    current = _digest(path)
    try:
        known = recorded(path)
    except StoreError:
        return []
    return [current] if known is None or current in known else []


def verify(path: Path) -> bool:
    """Check a file against its digest.

    Returns:
        False where there is none, as in folders of version 0.1.0.

    Raises:
        StoreError: If the content is not the one that was written.
    """
    while (digests := recorded(path)) is not None:
        if _digest(path) in digests:
            return True
        if recorded(path) == digests:  # Otherwise another process has just replaced the file.
            raise StoreError(
                f"{path} is damaged: it does not match its digest; move its folder away and run it again."
            )
    return False


def recorded(path: Path) -> list[str] | None:
    """The digests of a file, or None where there are none.

    Raises:
        StoreError: If they are damaged.
    """
    beside = digest_file(path)
    with disk_errors(beside, "read"):
        if not beside.exists():
            return None
    content = read_file(beside)
    line = rb"([0-9a-f]{64})  " + re.escape(path.name.encode()) + rb"\n"
    if not re.fullmatch(b"(?:" + line + b"){1,2}", content):
        raise StoreError(f"{beside} is damaged: it holds no digest; move its folder away and run it again.")
    return [digest.decode() for digest in re.findall(line, content)]


def remove(path: Path) -> None:
    """Remove a file, if it is there, and then its digest."""
    with disk_errors(path):
        if path.exists():
            path.unlink(missing_ok=True)
            flush(path.parent)  # Else a crash might leave the file and take its digest.
        if digest_file(path).exists():  # In a folder that is read-only even the removal of nothing fails.
            digest_file(path).unlink(missing_ok=True)


def _digest(path: Path) -> str:
    require_file(path)
    with disk_errors(path, "read"), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
