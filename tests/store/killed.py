"""Writes a run in child processes that are killed; what is left must be old or new, whole, and swept.

Run as `python killed.py FOLDER events|moments`.
"""

import os
import random
import select
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import polars as pl
import torch

from spectrope.store import Run, open_run

Opened = Callable[[], Run]
Tell = Callable[[int], object]

SIZE = 20_000
OPERATIONS = ("open", "os.rename", "os.remove", "os.mkdir", "os.listdir", "os.scandir")
FILES = ("table", "tensors", "manifest")


def write(run: Run, version: int) -> None:
    run.write_frame("table", pl.DataFrame({"version": [version] * SIZE}))
    run.write_tensors("tensors", {"x": torch.full((SIZE,), version)}, {"version": str(version)})
    run.finish({"version": version})


def versions(run: Run) -> list[int]:
    """The version that each file holds in all of its parts, or 0 where it was never written."""
    found = []
    if run.has_frame("table"):
        found.append(run.frame("table")["version"])
    if run.has_tensors("tensors"):
        tensors, metadata = run.read_tensors("tensors")
        found.append(pl.Series([*tensors["x"].tolist(), int(metadata["version"])]))
    if run.finished:
        found.append(pl.Series([run.manifest["version"]]))
    assert all(values.n_unique() == 1 for values in found)
    return [values[0] for values in found] + [0] * (len(FILES) - len(found))


def fork(work: Callable[[], None]) -> int:
    """Do some work in a child. This process itself never uses polars, whose threads no child inherits."""
    if pid := os.fork():
        return pid
    try:
        work()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def born(root: Path, work: Callable[[Opened, Tell], None]) -> tuple[int, int]:
    """A child that opens the run, then works, telling through a pipe the last version written whole."""
    reader, writer = os.pipe()
    pid = fork(lambda: work(lambda: open_run(root, {"a": 1}, 1), lambda v: os.write(writer, bytes([v]))))
    os.close(writer)
    return pid, reader


def last(reader: int) -> int:
    told = b""
    while piece := os.read(reader, 4096):
        told += piece
    os.close(reader)
    return told[-1] if told else 0


def check(root: Path, told: int) -> None:
    """Fail if the run is not whole at one of the versions that it may have."""
    _, status = os.waitpid(fork(lambda: inspect(root, told)), 0)
    assert status == 0


def inspect(root: Path, told: int) -> None:
    run = open_run(root, {"a": 1}, 1)
    found = versions(run)
    assert sorted(found, reverse=True) == found
    assert set(found) <= {told, told + 1}, (told, found)
    assert not [path.name for path in run.path.iterdir() if path.name.startswith(".")]


def at_event(moment: int):
    """Work that ends before the file operation of that number; audit hooks see each."""

    def work(opened, tell) -> None:
        seen = 0

        def hook(event: str, _: object) -> None:
            nonlocal seen
            if event not in OPERATIONS:
                return
            seen += 1
            if seen == moment:
                os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(hook)
        run = opened()
        for version in (1, 2):
            write(run, version)
            tell(version)

    return work


def without_end(opened, tell) -> None:
    run = opened()
    for version in range(1, 256):
        write(run, version)
        tell(version)


def kill_at_events(root: Path) -> int:
    for moment in range(1, 1000):
        pid, reader = born(root / str(moment), at_event(moment))
        told = last(reader)
        _, status = os.waitpid(pid, 0)
        check(root / str(moment), told)
        if status == 0:
            return moment - 1
        assert os.WTERMSIG(status) == signal.SIGKILL
    raise AssertionError("the writer never ended")


def kill_at_moments(root: Path, times: int = 25) -> int:
    draw = random.Random(0)
    for time in range(times):
        pid, reader = born(root / str(time), without_end)
        select.select([reader], [], [])  # the first version is whole
        select.select([], [], [], draw.uniform(0, 0.05))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        check(root / str(time), last(reader))
    return times


if __name__ == "__main__":
    kill = {"events": kill_at_events, "moments": kill_at_moments}[sys.argv[2]]
    print(kill(Path(sys.argv[1])))
