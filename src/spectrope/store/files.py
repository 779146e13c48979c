"""Atomic file writes: after a crash a file has either its old or its new content."""

import contextlib
import io
import json
import os
import re
import secrets
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from spectrope.core import StoreError, strict_json
from spectrope.store.errors import disk_errors
from spectrope.store.locks import take_lock
from spectrope.store.numbering import METADATA

TEMPORARY = ".tmp-"
NAME = re.compile(
    TEMPORARY.replace(".", r"\.") + r"(\w+-\d+-)?[0-9a-f]{16}-"
)  # Version 0.1.0 named host and process.
DEEPEST = 64  # Levels of JSON.
NAME_KEPT = 50  # Characters of a name, of at most four bytes each, that its temporary file's ends with.


def replace_file(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a temporary file beside `path`, force it to disk, and rename it to `path`.

    A process killed at any moment leaves the old file or the new one.

    Args:
        path: The file.
        write: Writes its whole content to the path that it is given, raising `OSError` where it cannot.

    Raises:
        StoreError: If the disk is full, read-only or not writable; the previous content of `path` is kept.
    """
    with disk_errors(path):
        sweep_temporaries(path.parent)
        temporary, handle = _new_temporary(path)
        try:
            write(temporary)
            flush(temporary)
            is_new = not path.exists()
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
            os.close(handle)
        try:
            flush(path.parent)
        except OSError:
            if is_new:  # The disk may not have it, so that it must not be read back.
                path.unlink(missing_ok=True)
            raise


def _new_temporary(path: Path) -> tuple[Path, int]:
    """A new, empty temporary file beside `path`, and the descriptor that holds its lock."""
    while True:
        # The end of a long name alone, so that no temporary name is longer than the file system allows.
        temporary = path.with_name(f"{TEMPORARY}{secrets.token_hex(8)}-{path.name[-NAME_KEPT:]}")
        # Made here and nowhere else: a link that somebody has planted under this name is not followed.
        handle = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        if take_lock(handle) is not False and os.fstat(handle).st_nlink:
            return temporary, handle
        os.close(handle)  # Another process has swept it before it was locked.


def json_content(value: Mapping[str, Any]) -> bytes:
    """A mapping as JSON; a number that is not finite becomes null."""
    return (strict_json(value, indent=2) + "\n").encode()


def parquet_content(frame: pl.DataFrame) -> bytes:
    """A table as Parquet, marked as counting layers and heads from 0.

    It is formatted in memory, because the Parquet writer hides the reason for a failed write.
    """
    content = io.BytesIO()
    frame.write_parquet(content, metadata=METADATA)
    return content.getvalue()


def write_output(path: Path, content: bytes) -> None:
    """Write a file at a place that the user chose, whole or not at all, and make the folders above it.

    Raises:
        StoreError: If the disk is full, read-only or forbidden; what was there before stays.
    """
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, lambda temporary: temporary.write_bytes(content))


def write_parquet(path: Path, frame: pl.DataFrame) -> None:
    """Write a table, marked as counting layers and heads from 0, whole or not at all."""
    write_output(path, parquet_content(frame))


def make_folder(path: Path) -> None:
    """Make a folder and those above it, where they are missing, and force their names to disk.

    Raises:
        StoreError: If the disk is full, read-only or forbidden.
    """
    with disk_errors(path):
        missing = [folder for folder in (path, *path.parents) if not folder.exists()]
        path.mkdir(parents=True, exist_ok=True)
        for folder in reversed(missing):
            flush(folder.parent)


def require_file(path: Path) -> None:
    """Refuse a pipe, a socket or a device, whose reader might wait forever.

    Raises:
        StoreError: If it is one, or missing.
    """
    with disk_errors(path, "read"):
        mode = path.stat().st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise StoreError(f"cannot read {path}: it is no regular file; move it away.")


def require_text(path: Path) -> None:
    """Refuse a path whose name is no text, which tables and messages cannot hold.

    Raises:
        StoreError: If it has bytes that are not UTF-8.
    """
    if (shown := printable(path)) != str(path):
        raise StoreError(f"cannot use {shown}: its name is not UTF-8; choose another.")


def printable(path: Path) -> str:
    """A path as text; bytes that are not UTF-8 as escapes."""
    return str(path).encode(errors="backslashreplace").decode()


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
        raise _damaged(path, "it is not valid JSON") from None
    if not isinstance(value, dict) or nests_deeply(value):
        raise _damaged(path, "it holds no JSON object, or one that nests too deeply")
    return value


def _damaged(path: Path, how: str) -> StoreError:
    return StoreError(f"{path} is damaged: {how}; move its folder away and run it again.")


def nests_deeply(value: Any) -> bool:
    """Whether a JSON value nests deeper than anything that this program writes."""
    level = [value]
    for _ in range(DEEPEST):
        inner = (one.values() if isinstance(one, dict) else one for one in level)
        level = [one for values in inner for one in values if isinstance(one, dict | list)]
        if not level:
            return False
    return True


def files_of(folder: Path, *suffixes: str) -> list[Path]:
    """The files of a folder with one of these suffixes, by name, but for temporary ones and those whose names
    are not UTF-8, which are not ours."""
    return sorted(
        path
        for path in folder.iterdir()
        if path.suffix in suffixes and not is_temporary(path) and printable(path) == str(path)
    )


def is_temporary(path: Path) -> bool:
    """Whether a file is a temporary file of `replace_file`."""
    return NAME.match(path.name) is not None


def sweep_temporaries(folder: Path) -> None:
    """Remove temporary files of dead processes, whose locks are free; those of running processes stay."""
    with contextlib.suppress(OSError):  # Of a folder that cannot be listed.
        for path in filter(is_temporary, list(folder.iterdir())):
            _sweep(path)


def _sweep(path: Path) -> None:
    with contextlib.suppress(OSError):  # Another process removes it, or nobody can.
        handle = os.open(path, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0))
        try:
            if take_lock(handle):
                path.unlink(missing_ok=True)
        finally:
            os.close(handle)


def move_aside(path: Path, place: Path, name: str) -> Path:
    """Move a file or folder into the folder `place`, which is made; returns where it is now.

    Args:
        path: What to move.
        place: Where to.
        name: Its name there; one that is taken gets a number.

    Raises:
        StoreError: If it cannot be moved.
    """
    make_folder(place)
    with disk_errors(place):
        taken = {one.name for one in place.iterdir()}
        names = (name, *(f"{name}-{number}" for number in range(2, len(taken) + 3)))
        target = place / next(one for one in names if one not in taken)
        os.rename(path, target)
        flush(place)
        flush(path.parent)
    return target


def flush(path: Path) -> None:
    """Flush a file, or the names in a folder, to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
