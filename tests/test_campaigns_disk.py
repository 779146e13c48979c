"""The model of a disk: what was forced to it lasts, and anything else may be lost."""

import random

from campaigns.disk import Call, Disk, general, read_log

REPLACED = [  # As a file is replaced: written beside it, forced to disk, renamed, its folder forced to disk.
    Call("O", 1, "a/.tmp-x"),
    Call("W", 1, "a/.tmp-x", data=b"new"),
    Call("F", 1, "a/.tmp-x"),
    Call("R", 1, "a/.tmp-x", "a/file"),
    Call("F", 1, "a"),
]
BEFORE: dict[str, bytes | None] = {"a": None, "a/file": b"old"}


def states(calls: list[Call], end: int) -> set[bytes | None]:
    """Contents of the file after a loss of power before call `end`, in 100 draws."""
    found = Disk(BEFORE, calls).losses(end, random.Random(0), 100)
    return {files.get("a/file") for files in found}


def test_a_file_that_is_replaced_with_care_is_old_or_new():
    for end in range(len(REPLACED)):
        assert states(REPLACED, end) <= {b"old", b"new"}
    assert states(REPLACED, 4) == {b"old", b"new"}
    assert states(REPLACED, 5) == {b"new"}


def test_without_forcing_the_content_a_file_may_be_empty():
    careless = [call for call in REPLACED if call != Call("F", 1, "a/.tmp-x")]
    assert b"" in states(careless, 4)


def test_of_two_writes_either_may_be_lost():
    calls = [Call("W", 1, "a/file", data=b"12"), Call("W", 1, "a/file", offset=2, data=b"34")]
    assert states(calls, 2) == {b"old", b"12d", b"ol34", b"1234"}


def test_a_name_may_outlive_its_removal_and_a_folder_takes_its_files_along():
    calls = [Call("M", 1, "b"), Call("O", 1, "b/c"), Call("F", 1, "b"), Call("U", 1, "a/file")]
    found = Disk(BEFORE, calls).losses(4, random.Random(0), 100)
    assert {("a/file" in files, "b" in files, "b/c" in files) for files in found} == {
        (True, True, True),
        (True, False, False),
        (False, True, True),
        (False, False, False),
    }


def test_a_file_that_is_cut_keeps_its_beginning():
    assert states([Call("S", 1, "a/file", offset=1)], 1) == {b"old", b"o"}


def test_a_record_of_calls_is_read_back():
    log = b"W\n7\n/root/a/b\n\n3\n4\n\n\nx\nR\n7\n/root/a\n/root/b\n0\n0\n"
    assert read_log(log, "/root") == [
        Call("W", 7, "a/b", "", 3, b"\n\nx\n"),
        Call("R", 7, "a", "b", 0, b""),
    ]


def test_places_leave_out_what_is_random():
    path = "runs/0123456789ab/.tmp-0123456789abcdef-weights.safetensors"
    assert general(path) == "runs/RUN/.tmp-weights.safetensors"
    assert general("tmp/.spectrope-scratch-x1/0123456789ab") == "tmp/.spectrope-scratch/RUN"
