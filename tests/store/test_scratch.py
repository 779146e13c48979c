"""Temporary folders are removed, also those that a killed process has left."""

import stat
import tempfile

import pytest

from spectrope.core.errors import StoreError
from spectrope.store.scratch import PREFIX, temporary_folder


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_a_temporary_folder_is_its_owners_and_goes_with_its_block(place):
    with temporary_folder() as folder:
        assert folder.parent == place
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        (folder / "run").mkdir()
    assert list(place.iterdir()) == []


def test_those_of_killed_processes_are_removed_and_those_of_running_ones_stay(place):
    left, victim = place / f"{PREFIX}left", place / "victim"
    (left / "run").mkdir(parents=True)
    victim.mkdir()
    (place / f"{PREFIX}link").symlink_to(victim)
    with temporary_folder() as first, temporary_folder() as second:
        assert first.exists()
        assert second.exists()
        assert not left.exists()
    assert victim.exists()


def test_a_missing_place_for_them_is_told(monkeypatch):
    def missing() -> str:
        raise FileNotFoundError(2, "No usable temporary directory found in ['/nowhere']")

    monkeypatch.setattr(tempfile, "gettempdir", missing)
    with (
        pytest.raises(StoreError, match="cannot write a temporary folder: No usable temporary"),
        temporary_folder(),
    ):
        pass
