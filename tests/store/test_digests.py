"""No bit of a run's files turns unseen, and every content that was written is believed."""

import random

import polars as pl
import pytest
import torch
from tests.store.old import without_digests

from spectrope.core import StoreError
from spectrope.store import Run, digests, load_run, open_run
from spectrope.store.digests import digest_file, recorded, verify, write_verified
from spectrope.store.files import replace_file


@pytest.fixture
def run(tmp_path) -> Run:
    run = open_run(tmp_path, {"task": "distance", "seed": 0}, 1)
    run.write_frame("metrics", pl.DataFrame({"loss": [0.5, 0.25]}))
    run.write_tensors("weights", {"x": torch.randn(50, 3)}, {"step": "7"})
    run.finish({"test_accuracy": 0.5})
    return run


def read_all(run: Run) -> None:
    run = load_run(run.path)
    _ = run.manifest
    run.frame("metrics")
    run.read_tensors("weights")


NAMES = ["config.json", "manifest.json", "metrics.parquet", "weights.safetensors"]


@pytest.mark.sampled
@pytest.mark.parametrize("name", [*NAMES, *(f"{name}.sha256" for name in NAMES)])
def test_no_bit_turns_unseen(run, name):
    path, draw = run.path / name, random.Random(name)
    whole = path.read_bytes()
    bits = range(8 * len(whole)) if len(whole) < 60 else draw.sample(range(8 * len(whole)), 200)
    for bit in bits:
        turned = bytearray(whole)
        turned[bit // 8] ^= 1 << bit % 8
        path.write_bytes(turned)
        with pytest.raises(StoreError):
            read_all(run)
        with pytest.raises(StoreError):
            run.verify()
    path.write_bytes(whole)
    read_all(run)
    assert run.verify()


@pytest.mark.parametrize("name", NAMES)
def test_a_digest_that_is_gone_is_missed(run, name):
    (run.path / f"{name}.sha256").unlink()
    if name == "config.json":  # Its folder's name is a digest, too.
        read_all(run)
        assert not run.verify()
        return
    with pytest.raises(StoreError, match=f"{name} is damaged: it has lost its digest; move its folder away"):
        read_all(run)


def test_a_folder_of_version_0_1_is_read_and_not_verified(run):
    read_all(without_digests(run))
    assert not run.verify()
    run.write_frame("ablation", pl.DataFrame({"drop": [1.0]}))
    assert verify(run.path / "ablation.parquet")
    assert not run.verify()


def test_the_format_is_that_of_sha256sum(run):
    # From the standard: SHA-256 of "abc" (FIPS 180-2, appendix B.1).
    path = run.path / "abc.txt"
    write_verified(path, b"abc")
    digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert digest_file(path).read_text() == f"{digest}  abc.txt\n"


def test_old_and_new_content_are_believed_while_one_replaces_the_other(run):
    path = run.path / "abc.txt"
    for content in (b"one", b"two", b"three"):
        write_verified(path, content)
    assert verify(path)
    path.write_bytes(b"two")  # As if killed after the digest was written and before the file.
    assert verify(path)
    write_verified(path, b"four")
    path.write_bytes(b"two")
    assert verify(path)
    path.write_bytes(b"one")
    with pytest.raises(StoreError, match=r"abc\.txt is damaged: it does not match its digest"):
        verify(path)


def test_a_file_without_digest_is_believed_while_it_is_replaced(run):
    path = run.path / "abc.txt"
    path.write_bytes(b"old")
    write_verified(path, b"new")
    path.write_bytes(b"old")
    assert verify(path)


def test_a_file_replaced_while_it_is_read_is_no_damage(run, monkeypatch):
    from spectrope.store import digests

    path, digest = run.path / "abc.txt", digests._digest
    write_verified(path, b"one")

    def overtaken(read):
        monkeypatch.setattr(digests, "_digest", digest)
        write_verified(read, b"two")
        write_verified(read, b"three")
        return digest(read)

    monkeypatch.setattr(digests, "_digest", overtaken)
    assert verify(path)


def test_a_digest_of_another_shape_is_damaged(run):
    digest_file(run.path / "metrics.parquet").write_text("none\n")
    with pytest.raises(StoreError, match=r"metrics\.parquet\.sha256 is damaged: it holds no digest"):
        recorded(run.path / "metrics.parquet")


def test_a_damaged_digest_does_not_keep_a_file_from_being_written_anew(tmp_path):
    path = tmp_path / "metrics.parquet"
    write_verified(path, b"old")
    digest_file(path).write_text("no digest")
    write_verified(path, b"new")
    assert verify(path)
    assert path.read_bytes() == b"new"


def test_content_that_was_damaged_is_not_believed_after_a_crash_of_the_next_writer(tmp_path, monkeypatch):
    path = tmp_path / "metrics.parquet"
    write_verified(path, b"old")
    path.write_bytes(b"bad")

    def crash(target, write):
        if target == path:
            raise KeyboardInterrupt
        replace_file(target, write)

    monkeypatch.setattr(digests, "replace_file", crash)
    with pytest.raises(KeyboardInterrupt):
        write_verified(path, b"new")
    with pytest.raises(StoreError, match="does not match its digest"):
        verify(path)


def test_a_removed_file_keeps_its_digest_until_its_removal_is_on_the_disk(tmp_path, monkeypatch):
    path, seen = tmp_path / "checkpoint.safetensors", []
    write_verified(path, b"content")
    monkeypatch.setattr(
        digests, "flush", lambda folder: seen.append((folder, path.exists(), digest_file(path).exists()))
    )
    digests.remove(path)
    assert seen == [(tmp_path, False, True)]
    assert list(tmp_path.iterdir()) == []
    digests.remove(path)
    assert len(seen) == 1


def test_where_there_is_nothing_to_remove_a_read_only_folder_is_no_obstacle(tmp_path, monkeypatch):
    def refused(path, missing_ok=False):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(type(tmp_path), "unlink", refused)
    digests.remove(tmp_path / "checkpoint.safetensors")
