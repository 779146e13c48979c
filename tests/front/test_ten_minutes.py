"""A newcomer's script runs, and its types are checked as strictly as can be."""

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).with_name("ten_minutes.py")


def test_it_runs_and_leaves_what_it_was_asked_for(tmp_path):
    quiet = os.environ | {"PYTHONWARNINGS": "ignore"}
    done = subprocess.run([sys.executable, SCRIPT], cwd=tmp_path, env=quiet, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for shown in ("laws of ten_minutes", "distance   ten_minutes", "['matches', 'matches'] True", "<Run "):
        assert shown in done.stdout
    assert {"runs", "report.html", "heads.svg"} <= {path.name for path in tmp_path.iterdir()}


def test_its_types_pass_the_strict_check():
    assert SCRIPT.read_text().startswith("# pyright: strict\n")
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, str(SCRIPT)]
    done = subprocess.run(command, cwd=SCRIPT.parents[2], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
