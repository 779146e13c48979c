"""A seeded sample of each campaign: `make campaigns` runs them whole."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from campaigns.faults import compiler

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.sampled("campaign")
needs_compiler = pytest.mark.skipif(compiler() is None, reason="this machine has no C compiler")


def sample(name: str, *options: str) -> str:
    """What a campaign prints, without faults; its process has none of the checks of array types."""
    ended = subprocess.run(
        [sys.executable, "-m", f"campaigns.{name}", "--unstored", *options],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-3000:]
    return ended.stdout


@needs_compiler
def test_a_command_goes_on_wherever_it_is_killed_or_refused():
    told = sample("crashes", "--commands", "train", "--most", "12")
    assert re.search(r"train: 12 trials at \d\d+ points, \d+ left, 0 faults", told)


def test_every_reader_refuses_or_accepts_what_is_damaged():
    told = sample("fuzz", "--share", "0.01")
    assert len(re.findall(r"[1-9]\d* cases, \d+ accepted, 0 faults", told)) == 13


def test_several_writers_finish_each_run_once():
    assert "1 histories, 0 faults" in sample("writers", "--histories", "1")


def test_a_long_process_holds_no_more_files_or_threads():
    told = sample("long_runs", "--runs", "20")
    for name in ("file_descriptors", "threads", "temporary_files"):
        assert f"\n{name}: 0.0 for 1000 runs" in told, told


@needs_compiler
def test_a_command_needs_no_network_and_no_home_and_keeps_secrets():
    assert "1 commands, 0 faults" in sample("isolation", "--first", "1")
