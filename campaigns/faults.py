"""Runs commands with one call on the file system failing, or the process killed at it."""

import errno
import json
import mmap
import os
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from campaigns.disk import Call, read_log

HERE = Path(__file__).parent
RECORD, KILL_BEFORE, KILL_WITHIN, FAIL_ONCE, FAIL_ON = range(5)
HEAD = struct.Struct("iiiiqq512s512s")  # As `struct control` in faults.c begins.


@dataclass(frozen=True)
class Fault:
    """What happens at one call.

    Args:
        mode: RECORD for nothing, KILL_BEFORE it, KILL_WITHIN it (after half of a write), FAIL_ONCE, or
            FAIL_ON from it on.
        number: Of the call, from 1.
        error: The error number that it fails with.
    """

    mode: int = RECORD
    number: int = 0
    error: int = 0


@dataclass(frozen=True)
class Ended:
    """How a command ended.

    Args:
        code: Its exit code, minus the number of the signal that killed it, or "hang".
        out: What it printed.
        err: What it printed on standard error.
        calls: The calls that changed files.
        seconds: How long it took.
    """

    code: int | str
    out: str
    err: str
    calls: list[Call]
    seconds: float


def compiler() -> str | None:
    """The C compiler of this machine, if it has one."""
    return shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


class Server:
    """A process with the program loaded, which carries out each command in a child of its own.

    Args:
        place: An empty folder for its own files.
    """

    def __init__(self, place: Path) -> None:
        self.place = place
        self.library, self.control = place / "faults.so", place / "control"
        cc = compiler()
        if cc is None:
            raise SystemExit("campaigns of faults need a C compiler; install gcc or clang.")
        source = str(HERE / "faults.c")
        build = [cc, "-O1", "-shared", "-fPIC", "-o", str(self.library), source, "-ldl", "-lpthread"]
        subprocess.run(build, check=True)
        self.control.write_bytes(bytes(4096))
        words = [sys.executable, "-m", "campaigns.server"]
        environment = {
            **os.environ,
            "LD_PRELOAD": str(self.library),
            "CAMPAIGN_CONTROL": str(self.control),
            "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
        }
        self.process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            cwd=HERE.parent,
        )
        size = self._answer()["control"]
        assert HEAD.size < size <= 4096, size
        with self.control.open("r+b") as file:
            self.shared = mmap.mmap(file.fileno(), 4096)

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *error: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()

    def command(
        self,
        folder: Path,
        words: Sequence[str],
        fault: Fault | None = None,
        *,
        tiny: bool = False,
        limit: float = 900.0,
    ) -> Ended:
        """Carry out a command in a folder, whose files alone are watched; `fault` None watches nothing."""
        (folder / "tmp").mkdir(exist_ok=True)
        log, out, err = (self.place / name for name in ("log", "out", "err"))
        log.unlink(missing_ok=True)
        self._arm(folder, log, fault)
        request = {
            "do": "command",
            "folder": str(folder),
            "words": list(words),
            "out": str(out),
            "err": str(err),
            "tiny": tiny,
            "limit": limit,
        }
        answer = self._ask(request)
        self._disarm()
        calls = read_log(log.read_bytes(), str(folder)) if log.exists() else []
        said, complained = (path.read_text(errors="replace") for path in (out, err))
        return Ended(answer["code"], said, complained, calls, answer["seconds"])

    def digest(self, folder: Path) -> dict[str, str]:
        """What a folder holds; see `campaigns.server.digest`."""
        answer = self._ask({"do": "digest", "folder": str(folder)})
        return answer.get("digest", {"unreadable": "a file of the folder cannot be read"})

    def _arm(self, folder: Path, log: Path, fault: Fault | None) -> None:
        fault_or_none = fault or Fault()
        self.shared[: HEAD.size] = HEAD.pack(
            int(fault is not None),
            fault_or_none.mode,
            fault_or_none.error,
            0,
            fault_or_none.number,
            0,
            str(folder).encode(),
            str(log).encode(),
        )

    def _disarm(self) -> None:
        self.shared[:4] = struct.pack("i", 0)

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"the server of the campaign ended with {self.process.wait()}.")
        return json.loads(line)


def scratch() -> Path:
    """A new folder for a campaign, by its real path."""
    return Path(os.path.realpath(tempfile.mkdtemp(prefix="campaign-")))


ERRORS = {errno.errorcode[number]: number for number in (errno.EIO, errno.ENOSPC, errno.EACCES, errno.ENOMEM)}
