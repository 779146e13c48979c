"""A lock ends with its owner, is waited for while the owner lives, and is not left behind."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from spectrope.core.errors import Interrupted, SpectropeWarning, StoreError
from spectrope.store import locks
from spectrope.store.locks import held, take_lock

OWNER = """
import fcntl, os, sys, time
handle = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
fcntl.flock(handle, fcntl.LOCK_EX)
os.write(handle, b"process 7 on elsewhere")
print("held", flush=True)
time.sleep(600)
"""


@pytest.fixture
def owner(tmp_path):
    """Another process that holds a lock."""
    process = subprocess.Popen([sys.executable, "-c", OWNER, tmp_path / "lock"], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    yield process
    process.kill()
    process.communicate()


def wait_for(path: Path, done: list[str]) -> threading.Thread:
    def work() -> None:
        with held(path, "run x", lambda: False):
            done.append("held")

    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_a_lock_is_removed_after_its_block(tmp_path):
    with held(tmp_path / "lock", "run x", lambda: False):
        text = (tmp_path / "lock").read_text()
        assert text == f"process {os.getpid()} on {os.uname().nodename}"
    assert not (tmp_path / "lock").exists()


def test_whoever_waits_is_told_for_whom_and_may_give_up(tmp_path, owner):
    asked = iter([False, False, True])
    told = r"run x is in use by process 7 on elsewhere; waiting until it is free\."
    with (
        pytest.warns(SpectropeWarning, match=told) as warned,
        pytest.raises(Interrupted, match="while run x was in use by another process"),
        held(tmp_path / "lock", "run x", lambda: next(asked)),
    ):
        pass
    assert len(warned) == 1


@pytest.mark.parametrize("stopped", [False, True])
def test_a_lock_ends_with_its_owner_and_is_kept_by_one_that_is_merely_stopped(tmp_path, owner, stopped):
    if stopped:
        os.kill(owner.pid, signal.SIGSTOP)
    done: list[str] = []
    thread = wait_for(tmp_path / "lock", done)
    thread.join(3 * locks.SECONDS_BETWEEN_LOOKS)
    assert done == []
    owner.kill()
    thread.join(30)
    assert done == ["held"]


def test_a_lock_file_that_its_last_owner_removes_is_made_anew(tmp_path, monkeypatch):
    taken = []

    def take(handle: int) -> bool:
        if not taken:  # As if its owner removed the file and closed it just before.
            (tmp_path / "lock").unlink()
        taken.append(handle)
        return True

    monkeypatch.setattr(locks, "take_lock", take)
    with (
        pytest.warns(SpectropeWarning, match="in use by another process"),
        held(tmp_path / "lock", "x", bool),
    ):
        assert (tmp_path / "lock").exists()
    assert len(taken) == 2


def test_without_locks_nothing_is_waited_for(tmp_path, owner, monkeypatch):
    monkeypatch.setattr(locks, "fcntl", None)
    handle = os.open(tmp_path / "lock", os.O_RDWR)
    assert take_lock(handle) is None
    os.close(handle)
    with held(tmp_path / "lock", "run x", lambda: True):
        pass


def test_a_link_in_the_place_of_a_lock_is_refused(tmp_path):
    (tmp_path / "victim").write_text("kept")
    (tmp_path / "lock").symlink_to(tmp_path / "victim")
    with pytest.raises(StoreError, match=r"cannot write .*lock"), held(tmp_path / "lock", "run x", bool):
        pass
    assert (tmp_path / "victim").read_text() == "kept"
