"""An empty folder to type commands in, and a run that is trained once."""

import shutil
from pathlib import Path

import pytest
from tests.cli.typed import SMALL

from spectrope.cli import main
from spectrope.console.terminal import console
from spectrope.store import find_runs


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(console, "width", 200)


@pytest.fixture(scope="session")
def trained_once(tmp_path_factory) -> Path:
    """A folder of one run, to be copied."""
    root = tmp_path_factory.mktemp("once") / "runs"
    assert main(("train", *SMALL, "--runs", str(root))) == 0
    return root


@pytest.fixture
def trained(here, trained_once, tmp_path, capsys) -> str:
    shutil.copytree(trained_once, tmp_path / "runs")
    capsys.readouterr()
    (run,) = find_runs(tmp_path / "runs")
    return run.id
