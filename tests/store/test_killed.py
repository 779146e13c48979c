"""A writer killed with SIGKILL leaves files that are old or new and whole, and nothing that stays behind."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.sampled("kill")
@pytest.mark.parametrize(("way", "least"), [("events", 30), ("moments", 25)])
def test_every_file_is_old_or_new_whenever_the_writer_is_killed(tmp_path, way, least):
    script = Path(__file__).with_name("killed.py")
    ended = subprocess.run([sys.executable, script, tmp_path, way], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert int(ended.stdout) >= least  # kills, each looked at afterwards
