"""Run folders sent from one machine to another."""

import pytest
from tests.figures.synthetic import make_run

from spectrope.core.errors import StoreError
from spectrope.store import open_run, packed, unpacked


def test_a_folder_arrives_whole_and_what_is_there_stays(tmp_path):
    run = make_run(tmp_path / "there", "rope")
    (run.path / ".tmp-begun").write_text("half")
    folder = packed(run)
    assert list(folder.files)[-1] == "manifest.json"
    here = unpacked(folder, tmp_path / "here")
    assert (here.config, here.manifest, here.frames) == (run.config, run.manifest, run.frames)
    written = {path.name: path.stat().st_mtime_ns for path in here.path.iterdir()}
    unpacked(folder, tmp_path / "here")
    assert {path.name: path.stat().st_mtime_ns for path in here.path.iterdir()} == written


def test_an_unfinished_run_is_not_sent(tmp_path):
    with pytest.raises(StoreError, match="is unfinished"):
        packed(open_run(tmp_path, {"a": 1}, 1))
