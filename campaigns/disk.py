"""What a disk may hold after a loss of power, from a record of the calls that changed it.

A call lasts if the file that it wrote, or the folder whose names it changed, was forced to disk after it. Any
of the others may be lost, in any combination: no order is assumed between them.
"""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath


@dataclass(frozen=True)
class Call:
    """One call that changes files.

    Args:
        kind: O opens, T opens and empties, W writes, F forces to disk, S cuts to a size, R renames, U removes
            a file, D a folder, M makes a folder, L links.
        process: Id of the process.
        path: What it acts on, relative to the folder that is watched.
        other: Second path of a rename or link.
        offset: Where it writes, or the size that it cuts to.
        data: What it writes.
    """

    kind: str
    process: int
    path: str
    other: str = ""
    offset: int = 0
    data: bytes = b""

    @property
    def place(self) -> str:
        """Kind and file; names that are random or digests are left out."""
        return f"{self.kind} {general(self.path)}"


def general(path: str) -> str:
    """A path with the random part of a temporary name, and the ids of runs, taken out."""
    parts = []
    for part in PurePath(path).parts:
        if part.startswith(".tmp-"):
            part = ".tmp-" + part[len(".tmp-") + 17 :]
        elif part.startswith(".spectrope-scratch-"):
            part = ".spectrope-scratch"
        elif len(part) >= 12 and set(part[:12]) <= set("0123456789abcdef"):
            part = "RUN" + part[12:]
        parts.append(part)
    return "/".join(parts)


def read_log(content: bytes, root: str) -> list[Call]:
    """The calls that `faults.c` has recorded."""
    calls, at = [], 0
    while at < len(content):
        fields = []
        for _ in range(6):
            end = content.index(b"\n", at)
            fields.append(content[at:end])
            at = end + 1
        kind, process, path, other, offset, size = fields
        data = content[at : at + int(size)]
        at += int(size)
        one, two = (_relative(name.decode("utf-8", "surrogateescape"), root) for name in (path, other))
        calls.append(Call(kind.decode(), int(process), one, two, int(offset), data))
    return calls


def _relative(path: str, root: str) -> str:
    return str(PurePath(path).relative_to(root)) if path.startswith(root) else path


@dataclass
class _File:
    """One file, whatever it is called: the calls that changed its content, by number."""

    content: bytes = b""
    changes: list[int] = field(default_factory=list)


class Disk:
    """The files below a folder before some calls, and what they may be after a loss of power.

    Args:
        before: Content of each file before the calls, and None for each folder, by path.
        calls: What happened, in order.
    """

    def __init__(self, before: dict[str, bytes | None], calls: Sequence[Call]) -> None:
        self.before, self.calls = before, [call for call in calls if call.kind not in "!?"]
        self.file_of: list[int] = []  # Of each call, the number of the file that it acts on, or -1.
        self.forced: list[set[int]] = []  # Of each call that forces, the calls that it makes last.
        self._follow()

    def _follow(self) -> None:
        """Find which file each call acts on, and what each forcing call makes last."""
        names = {path: number for number, path in enumerate(self.before)}
        counter = len(names)
        pending: dict[tuple[str, int | str], set[int]] = {}
        for number, call in enumerate(self.calls):
            folder = str(PurePath(call.path).parent)
            made = False
            if call.kind in "OTM" and call.path not in names:
                names[call.path], made = counter, True
                counter += 1
            this = names.get(call.path, -1)
            self.file_of.append(this)
            forced: set[int] = set()
            if call.kind == "F":
                forced = pending.pop(("content", this), set()) | pending.pop(("names", call.path), set())
            self.forced.append(forced)
            if call.kind in "WST":
                pending.setdefault(("content", this), set()).add(number)
            if made or call.kind in "URDL":
                pending.setdefault(("names", folder), set()).add(number)
            if call.kind == "R":
                pending.setdefault(("names", str(PurePath(call.other).parent)), set()).add(number)
                names[call.other] = names.pop(call.path, -1)
            elif call.kind in "UD":
                names.pop(call.path, None)

    def undecided(self, end: int) -> list[int]:
        """The calls before number `end` that may be lost."""
        lasting = set().union(*self.forced[:end]) if end else set()
        changing = [n for n in range(end) if self.calls[n].kind in "OTWSRUDML"]
        return [number for number in changing if number not in lasting]

    def after(self, end: int, lost: Iterable[int]) -> dict[str, bytes | None]:
        """Files and folders after the calls before number `end`, of which some were lost."""
        gone = set(lost)
        contents: dict[int, bytes | None] = dict(enumerate(self.before.values()))
        names = {path: number for number, path in enumerate(self.before)}
        for number, call in enumerate(self.calls[:end]):
            if number not in gone:
                self._carry_out(call, self.file_of[number], names, contents)
        whole = {path: contents[this] for path, this in names.items() if this in contents}
        return {path: content for path, content in whole.items() if _has_folders(path, whole)}

    def _carry_out(
        self, call: Call, this: int, names: dict[str, int], contents: dict[int, bytes | None]
    ) -> None:
        if call.kind in "OTM":
            names.setdefault(call.path, this)
            contents.setdefault(this, None if call.kind == "M" else b"")
        if call.kind in "TWS":
            old = contents.get(this) or b""
            contents[this] = {"T": b"", "S": old[: call.offset], "W": _over(old, call)}[call.kind]
        if call.kind == "R" and this >= 0:
            names[call.other] = this
            contents.setdefault(this, b"")
        if call.kind in "RUD" and names.get(call.path) == this:
            del names[call.path]

    def losses(self, end: int, draw: random.Random, times: int) -> list[dict[str, bytes | None]]:
        """Different states after a loss of power before call `end`.

        The first has lost all that may be lost, the others random parts of it.
        """
        may = self.undecided(end)
        chosen = [may, *([one for one in may if draw.random() < 0.5] for _ in range(times))]
        return [self.after(end, one) for one in chosen]


def _over(old: bytes, call: Call) -> bytes:
    return old[: call.offset].ljust(call.offset, b"\0") + call.data + old[call.offset + len(call.data) :]


def _has_folders(path: str, names: dict[str, bytes | None]) -> bool:
    """Whether every folder above a path is there."""
    return all(str(parent) in names for parent in PurePath(path).parents if str(parent) != ".")


def snapshot(root: Path) -> dict[str, bytes | None]:
    """Every file and folder below one."""
    return {
        str(path.relative_to(root)): None if path.is_dir() else path.read_bytes()
        for path in sorted(root.rglob("*"))
    }


def restore(root: Path, files: dict[str, bytes | None]) -> None:
    """Make a folder that holds these files and folders."""
    root.mkdir(parents=True)
    for path, content in sorted(files.items()):
        if content is None:
            (root / path).mkdir(parents=True, exist_ok=True)
        else:
            (root / path).write_bytes(content)
