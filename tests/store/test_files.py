"""Files that would keep a reader waiting, or that nest too deeply, are refused in one line."""

import os
import secrets
import socket

import pytest
from tests.cli.typed import refused
from tests.figures.synthetic import make_run

from spectrope.cli import main
from spectrope.core.errors import StoreError
from spectrope.store import files
from spectrope.store.files import read_file, read_json, replace_file, require_file
from spectrope.store.records import read_records
from spectrope.store.run import load_run


@pytest.fixture
def pipe(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return path


@pytest.mark.parametrize("read", [require_file, read_file, read_json, read_records])
def test_a_pipe_is_refused_before_anything_waits_for_it(read, pipe):
    with pytest.raises(StoreError, match=r"pipe: it is no regular file; move it away\."):
        read(pipe)


def test_a_socket_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as end:
        end.bind("socket")
        with pytest.raises(StoreError, match="it is no regular file"):
            require_file(tmp_path / "socket")


def test_a_missing_file_is_told(tmp_path):
    with pytest.raises(StoreError, match=r"cannot read .*gone: No such file"):
        read_file(tmp_path / "gone")


def test_json_that_nests_too_deeply_is_damaged(tmp_path):
    (tmp_path / "deep.json").write_text("[" * 100_000 + "]" * 100_000)
    with pytest.raises(StoreError, match="is damaged: it is not valid JSON"):
        read_json(tmp_path / "deep.json")


@pytest.mark.parametrize("name", ["config.json", "manifest.json", "metrics.parquet", "manifest.json.sha256"])
def test_a_pipe_in_the_place_of_a_file_of_a_run_is_told(tmp_path, name):
    run = make_run(tmp_path, "rope")
    (run.path / name).unlink()
    os.mkfifo(run.path / name)
    with pytest.raises(StoreError, match="it is no regular file"):
        load_run(run.path).verify()


def test_runs_tells_a_pipe_and_lists_the_others(here, tmp_path, capsys):
    run = make_run(tmp_path / "runs", "rope")
    broken = tmp_path / "runs" / "0123456789ab"
    broken.mkdir()
    os.mkfifo(broken / "config.json")
    assert main(("runs",)) == 0
    told = capsys.readouterr()
    assert run.id in told.out
    assert "0123456789ab/config.json: it is no regular file; move it away." in told.err


def test_a_page_is_saved_under_a_name_that_is_no_utf_8(here, tmp_path):
    run = make_run(tmp_path / "runs", "rope")
    name = os.fsdecode(b"caf\xe9.html")
    assert main(("report", run.id, "--out", name)) == 0
    assert (tmp_path / name).read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_a_checkpoint_with_a_pipe_for_weights_is_refused(here, tmp_path, capsys):
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    os.mkfifo(tmp_path / "model.safetensors")
    assert "model.safetensors: it is no regular file" in refused(capsys, "audit", str(tmp_path))


def test_a_link_that_was_planted_is_not_followed(tmp_path, monkeypatch):
    monkeypatch.setattr(secrets, "token_hex", lambda size: "known")
    victim, target = tmp_path / "victim", tmp_path / "table.json"
    victim.write_text("kept")
    names = []
    replace_file(target, lambda temporary: names.append(temporary.name) or temporary.write_text("{}"))
    (tmp_path / names[0]).symlink_to(victim)
    with pytest.raises(StoreError, match=r"cannot write .*table\.json"):
        replace_file(target, lambda temporary: temporary.write_text("[]"))
    assert victim.read_text() == "kept"
    assert target.read_text() == "{}"


def test_the_longest_name_that_a_file_system_takes_can_be_written(tmp_path):
    for name in ("x" * 250 + ".html", "\N{GRINNING FACE}" * 62 + ".html"):
        replace_file(tmp_path / name, lambda temporary: temporary.write_text("page"))
        assert (tmp_path / name).read_text() == "page"


@pytest.mark.parametrize("is_new", [True, False])
def test_a_file_whose_name_cannot_be_forced_to_disk_is_told_and_not_read_back(tmp_path, monkeypatch, is_new):
    target = tmp_path / "manifest.json"
    if not is_new:
        target.write_text("old")

    def flush(path):
        if path == tmp_path:
            raise OSError(5, "Input/output error")

    monkeypatch.setattr(files, "flush", flush)
    with pytest.raises(StoreError, match=r"cannot write .*manifest\.json: Input/output error"):
        replace_file(target, lambda temporary: temporary.write_text("new"))
    assert target.exists() != is_new


def test_a_file_that_cannot_be_forced_to_disk_leaves_the_old_one(tmp_path, monkeypatch):
    target = tmp_path / "table.parquet"
    target.write_text("old")

    def fails(handle):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(StoreError, match=r"cannot write .*table\.parquet: Input/output error"):
        replace_file(target, lambda temporary: temporary.write_text("new"))
    assert [path.name for path in tmp_path.iterdir()] == ["table.parquet"]
    assert target.read_text() == "old"


def test_what_is_moved_aside_keeps_what_lies_there_already(tmp_path):
    for content in "abc":
        (tmp_path / "file").write_text(content)
        files.move_aside(tmp_path / "file", tmp_path / ".damaged", "file")
    moved = {path.name: path.read_text() for path in (tmp_path / ".damaged").iterdir()}
    assert moved == {"file": "a", "file-2": "b", "file-3": "c"}
