"""Files of records: whole lines are read past whatever is damaged."""

import errno
import json
import os

import pytest

from spectrope.core import config_hash
from spectrope.core.errors import StoreError
from spectrope.store.records import Complaint, append_record, read_records


def test_records_come_back_in_order(tmp_path):
    path = tmp_path / "some" / "rows.jsonl"
    records = [{"run": "a", "x": [1.5, None]}, {"run": "b", "x": []}]
    for record in records:
        append_record(path, record)
    assert read_records(path) == (records, [])


def torn(path):
    """A file whose last line a crash has cut off."""
    for run in "abc":
        append_record(path, {"run": run})
    path.write_bytes(path.read_bytes()[:-9])


def test_a_line_that_a_crash_cut_off_costs_that_line_alone(tmp_path):
    path = tmp_path / "rows.jsonl"
    torn(path)
    records, complaints = read_records(path)
    assert [record["run"] for record in records] == ["a", "b"]
    text = "rows.jsonl, line 3: no valid JSON, such as a line truncated by a crash; its contents are ignored."
    assert complaints == [Complaint(text, run="c")]
    assert str(complaints[0]) == text


def test_the_next_record_takes_the_place_of_a_line_that_a_crash_cut_off(tmp_path):
    path = tmp_path / "rows.jsonl"
    torn(path)
    append_record(path, {"run": "d"})
    assert read_records(path) == ([{"run": run} for run in "abd"], [])


def test_a_whole_last_line_without_its_end_is_kept(tmp_path):
    path = tmp_path / "rows.jsonl"
    append_record(path, {"run": "a"})
    path.write_bytes(path.read_bytes()[:-1])
    append_record(path, {"run": "a"})
    append_record(path, {"run": "b"})
    assert read_records(path) == ([{"run": "a"}, {"run": "b"}], [])


def test_a_record_that_is_there_already_is_not_added_again(tmp_path):
    path = tmp_path / "rows.jsonl"
    for run in "abba":
        append_record(path, {"run": run})
    assert read_records(path) == ([{"run": "a"}, {"run": "b"}], [])


def test_a_record_that_cannot_be_forced_to_disk_is_not_read_back(tmp_path, monkeypatch):
    path = tmp_path / "rows.jsonl"
    append_record(path, {"run": "a"})

    def fails(handle):
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fails)
        with pytest.raises(StoreError, match=r"cannot write .*rows\.jsonl: Input/output error"):
            append_record(path, {"run": "b"})
    assert read_records(path) == ([{"run": "a"}], [])


def test_a_changed_record_is_named(tmp_path):
    path = tmp_path / "rows.jsonl"
    append_record(path, {"run": "a", "accuracy": 0.5})
    path.write_text(path.read_text().replace("0.5", "0.9"))
    text = "rows.jsonl, line 1: run a does not match its checksum."
    assert read_records(path) == ([], [Complaint(text, run="a")])


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e999"])
def test_a_number_that_is_none_costs_its_line_alone(tmp_path, number):
    path = tmp_path / "rows.jsonl"
    append_record(path, {"run": "a", "loss": 0.5})
    append_record(path, {"run": "b"})
    path.write_text(path.read_text().replace("0.5", number))
    text = "rows.jsonl, line 1: no valid JSON, such as a line truncated by a crash; its contents are ignored."
    assert read_records(path) == ([{"run": "b"}], [Complaint(text, run="a")])


def test_what_the_disk_takes_by_parts_is_written_whole(tmp_path, monkeypatch):
    path, write = tmp_path / "rows.jsonl", os.write
    monkeypatch.setattr(os, "write", lambda handle, content: write(handle, content[:7]))
    append_record(path, {"run": "a", "loss": 0.5})
    assert read_records(path) == ([{"run": "a", "loss": 0.5}], [])


def test_a_disk_that_fills_up_within_a_line_is_told(tmp_path, monkeypatch):
    path, write, room = tmp_path / "rows.jsonl", os.write, [7]

    def until_full(handle, content):
        if not room:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(handle, content[: room.pop()])

    monkeypatch.setattr(os, "write", until_full)
    with pytest.raises(StoreError, match="the disk is full"):
        append_record(path, {"run": "a"})
    monkeypatch.undo()
    assert path.read_bytes() == b""
    append_record(path, {"run": "b"})
    assert read_records(path) == ([{"run": "b"}], [])


@pytest.mark.parametrize("line", ["[1]", json.dumps({"run": "a"}), "7"])
def test_a_line_that_is_no_record_is_named(tmp_path, line):
    path = tmp_path / "rows.jsonl"
    path.write_text(line)
    assert read_records(path) == ([], [Complaint("rows.jsonl, line 1: no record with a checksum.")])


def test_a_folder_in_the_way_is_told(tmp_path):
    with pytest.raises(StoreError, match="cannot write "):
        append_record(tmp_path, {"run": "a"})
    with pytest.raises(StoreError, match="cannot read "):
        read_records(tmp_path)


def test_a_record_that_nests_too_deeply_is_named(tmp_path):
    path = tmp_path / "rows.jsonl"
    nested = json.loads("[" * 100 + "]" * 100)
    record = {"run": "a", "x": nested}
    path.write_text(json.dumps({**record, "check": config_hash(record)}) + "\n")
    text = "rows.jsonl, line 1: a record that nests too deeply."
    assert read_records(path) == ([], [Complaint(text, run=None)])


def test_a_complaint_stays_short():
    assert len(str(Complaint("x" * 5000))) < 400
