"""A newcomer's script runs, and its types are checked as strictly as can be."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("ten_minutes.py")


@pytest.mark.sampled("walkthrough")
def test_it_runs_and_leaves_what_it_was_asked_for(tmp_path):
    quiet = os.environ | {"PYTHONWARNINGS": "ignore"}
    done = subprocess.run([sys.executable, SCRIPT], cwd=tmp_path, env=quiet, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for shown in ("laws of ten_minutes", "distance   ten_minutes", "['matches', 'matches'] True", "<Run "):
        assert shown in done.stdout
    assert {"runs", "report.html", "heads.svg"} <= {path.name for path in tmp_path.iterdir()}


def test_its_types_are_checked_as_strictly_as_can_be():
    """By `make types`, together with those of the package."""
    assert SCRIPT.read_text().startswith("# pyright: strict\n")
    root = SCRIPT.parents[2]
    checked = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["pyright"]["include"]
    assert SCRIPT.relative_to(root).as_posix() in checked
