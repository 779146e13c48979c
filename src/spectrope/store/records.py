"""Records as lines of JSON: many per file, appended atomically; damaged lines are skipped when reading.

Run folders store tables as Parquet, which is compact and typed; a study stores lines of text, which git can
merge.
"""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spectrope.core import StoreError, config_hash
from spectrope.store.errors import disk_errors
from spectrope.store.files import flush, make_folder, nests_deeply, read_file
from spectrope.store.locks import take_lock

CHECK = "check"
LONGEST = 300  # Characters of a complaint.
RUN = re.compile(rb'"run":"(\w+)"')  # As `append_record` writes it.


@dataclass(frozen=True)
class Complaint:
    """A record that is skipped because it cannot be read.

    Args:
        text: What is wrong, in one line.
        run: Id of the run of the record, if known.
    """

    text: str
    run: str | None = None

    def __post_init__(self) -> None:
        if len(self.text) > LONGEST:  # It may quote what a record holds.
            object.__setattr__(self, "text", f"{self.text[:LONGEST]} ...")

    def __str__(self) -> str:
        return self.text


def append_record(path: Path, record: Mapping[str, Any]) -> None:
    """Add a record to the end of a file, made if need be, and force it to disk.

    The line ends with a checksum of the record. One process appends at a time. A line that a crash has cut
    off is removed, as is one that cannot be written whole or forced to disk; a record that the file already
    holds is not added again.

    Raises:
        StoreError: If the disk is full, read-only or forbidden; the file then holds what it held before.
    """
    checked = {**record, CHECK: config_hash(dict(record))}
    line = json.dumps(checked, separators=(",", ":"), allow_nan=False).encode() + b"\n"
    make_folder(path.parent)
    with disk_errors(path):
        is_new = not path.exists()
        handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            take_lock(handle, wait=True)
            _append(handle, line)
        finally:
            os.close(handle)
        if is_new:
            flush(path.parent)


def _append(handle: int, line: bytes) -> None:
    content = os.pread(handle, os.fstat(handle).st_size, 0)
    whole = content[: content.rfind(b"\n") + 1]
    last = content[len(whole) :]
    if last and _is_record(last):  # As an editor leaves it.
        whole = content + b"\n"
    if b"\n" + line in b"\n" + whole:
        return
    line = whole[len(content) :] + line
    kept = min(len(whole), len(content))
    try:
        os.ftruncate(handle, kept)
        _write_all(handle, line)
        os.fsync(handle)
    except OSError:
        os.ftruncate(handle, kept)
        raise


def _is_record(line: bytes) -> bool:
    try:
        _record(line)
    except StoreError:
        return False
    return True


def _write_all(handle: int, content: bytes) -> None:
    """Write until everything is written: on a full disk a call may write a part, and the next one fails."""
    while content:
        content = content[os.write(handle, content) :]


def read_records(path: Path) -> tuple[list[dict[str, Any]], list[Complaint]]:
    """The complete records of a file, without their checksums, and a complaint for each other line.

    Raises:
        StoreError: If the file cannot be read.
    """
    lines = read_file(path).split(b"\n")
    records, complaints = [], []
    for number, line in enumerate(lines, start=1):
        if line:
            try:
                records.append(_record(line))
            except StoreError as error:
                match = RUN.search(line)
                run = match[1].decode() if match else None
                complaints.append(Complaint(f"{path.name}, line {number}: {error}", run))
    return records, complaints


def _record(line: bytes) -> dict[str, Any]:
    try:
        record = json.loads(line)
        if not isinstance(record, dict) or CHECK not in record:
            raise StoreError("no record with a checksum.")
        if nests_deeply(record):
            raise StoreError("a record that nests too deeply.")
        check = record.pop(CHECK)
        digest = config_hash(record)  # Refuses numbers that JSON has no word for, which Python reads.
    except (ValueError, RecursionError):
        raise StoreError(
            "no valid JSON, such as a line truncated by a crash; its contents are ignored."
        ) from None
    if digest != check:
        raise StoreError(f"run {record.get('run', 'unknown')} does not match its checksum.")
    return record
