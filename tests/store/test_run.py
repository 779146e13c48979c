"""Run folders: what is written is read back, and what is not ours, damaged or refused is one line."""

import errno
import json
import math
import os
from contextlib import contextmanager
from pathlib import Path

import polars as pl
import pytest
import torch
from polars.testing import assert_frame_equal
from tests.store.old import without_digests

from spectrope.core import config_hash
from spectrope.core.errors import StoreError
from spectrope.store import (
    RESULTS_VERSION,
    Run,
    files,
    find_runs,
    load_run,
    open_run,
    packed,
    resolve_run,
    survey,
)
from spectrope.store.locks import take_lock

CONFIG = {"task": {"kind": "distance"}, "model": {"betas": (0.9, 0.98)}, "seed": 0}
FRAME = pl.DataFrame({"epoch": [0, 1], "split": ["train", "test"], "loss": [math.nan, 0.25]})
TENSORS = {"a": torch.randn(3, 4), "b": torch.arange(6).reshape(2, 3).T, "c": torch.tensor(2.0).bfloat16()}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    run = open_run(tmp_path / "runs", CONFIG, 1)
    run.write_frame("metrics", FRAME)
    run.write_tensors("weights", TENSORS, {"step": "7"})
    run.finish({"test_accuracy": 0.5, "test_loss": math.inf, "machine": {"times": [1.0, math.nan]}})
    return run


def contents(run: Run) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in run.path.iterdir()}


def results(files: dict[str, bytes]) -> dict[str, bytes]:
    """All files but digests."""
    return {name: content for name, content in files.items() if not name.endswith(".sha256")}


def rewrite(path: Path, **changes: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def one_line(error: pytest.ExceptionInfo[StoreError]) -> bool:
    return "\n" not in str(error.value)


class TestRoundTrip:
    def test_what_is_written_is_read_back(self, run):
        again = load_run(run.path)
        assert again == run
        assert_frame_equal(again.frame("metrics"), FRAME)
        tensors, metadata = again.read_tensors("weights")
        assert metadata == {"step": "7"}
        assert tensors.keys() == TENSORS.keys()
        assert all(torch.equal(tensors[name], TENSORS[name]) for name in TENSORS)
        assert all(tensors[name].dtype == TENSORS[name].dtype for name in TENSORS)
        assert again.config == {**CONFIG, "model": {"betas": [0.9, 0.98]}}

    def test_numbers_that_are_not_finite_are_null_in_the_manifest(self, run):
        manifest = {"test_accuracy": 0.5, "test_loss": None, "machine": {"times": [1.0, None]}}
        assert run.manifest == {"run": run.id, **manifest}

    def test_the_folder_is_named_by_configuration_and_data_version(self, run):
        root = run.path.parent
        assert open_run(root, CONFIG, 1) == run
        assert open_run(root, {**CONFIG, "seed": 1}, 1) != run
        assert open_run(root, CONFIG, 2) != run
        assert len(find_runs(root)) == 3

    def test_opening_again_changes_nothing(self, run):
        before = contents(run)
        open_run(run.path.parent, CONFIG, 1)
        assert contents(run) == before

    def test_a_run_without_a_manifest_is_unfinished(self, tmp_path):
        run = open_run(tmp_path, CONFIG, 1)
        assert not run.finished
        with pytest.raises(StoreError, match=f"run {run.id} is unfinished"):
            _ = run.manifest
        assert find_runs(tmp_path) == [run]

    def test_removing_is_repeatable_and_spares_the_rest(self, run):
        run.remove("weights")
        run.remove("weights")
        assert run.has_frame("metrics")
        assert not run.has_tensors("weights")

    def test_what_was_never_written_is_named_beside_what_was(self, run):
        with pytest.raises(StoreError, match="has no table 'ablation'; it has metrics"):
            run.frame("ablation")
        run.remove("weights")
        with pytest.raises(StoreError, match="has no tensors 'weights'; it has none"):
            run.read_tensors("weights")


class TestDamage:
    @pytest.mark.parametrize(
        "name", ["config.json", "manifest.json", "metrics.parquet", "weights.safetensors"]
    )
    def test_a_file_cut_off_anywhere_is_refused_and_hides_no_other_run(self, run, name):
        root = run.path.parent
        other = open_run(root, {"seed": 1}, 1)
        whole = (run.path / name).read_bytes()
        end = len(whole.rstrip())
        for length in sorted({0, 1, 7, 8, end // 2, end - 8, end - 1}):
            (run.path / name).write_bytes(whole[:length])
            with pytest.raises(StoreError, match=rf"{name} is damaged: ") as error:
                load_run(run.path)
            assert one_line(error)
            assert find_runs(root) == [other]
            assert survey(root) == (find_runs(root), [(run.path, str(error.value))])

    def test_a_table_damaged_inside_is_refused_when_read(self, run):
        frame = run.path / "metrics.parquet"
        frame.write_bytes(b"\xff" * 200 + frame.read_bytes()[200:])
        with pytest.raises(
            StoreError, match=r"metrics\.parquet is damaged: .*; move its folder away"
        ) as error:
            run.frame("metrics")
        assert one_line(error)

    def test_tensors_are_never_unpickled(self, run):
        torch.save({"a": torch.ones(2)}, run.path / "weights.safetensors")
        with pytest.raises(StoreError, match=r"weights\.safetensors is damaged"):
            run.read_tensors("weights")

    @pytest.mark.parametrize("text", ["[1]", '"x"', "{", "", "\udcff"])
    def test_json_that_is_no_object_is_damaged(self, run, text):
        (run.path / "config.json").write_bytes(text.encode(errors="surrogateescape"))
        with pytest.raises(
            StoreError, match=r"config\.json is damaged: it (is not valid JSON|holds no JSON object)"
        ):
            load_run(run.path)


class TestForeign:
    def test_another_version_says_which(self, run):
        rewrite(run.path / "config.json", results_version=RESULTS_VERSION + 1)
        rule = f"results of version {RESULTS_VERSION + 1}, not {RESULTS_VERSION}"
        for read in (lambda: load_run(run.path), lambda: open_run(run.path.parent, CONFIG, 1)):
            with pytest.raises(StoreError, match=rule):
                read()

    def test_a_folder_with_other_files_is_left_alone(self, tmp_path, run):
        (run.path / "config.json").unlink()
        before = contents(run)
        with pytest.raises(
            StoreError, match=r"holds files but no config\.json, so it is no run; move it away"
        ):
            open_run(run.path.parent, CONFIG, 1)
        with pytest.raises(StoreError, match=r"is no run: it has no config\.json"):
            load_run(run.path)
        assert contents(run) == before

    def test_json_of_something_else_is_no_run(self, run):
        (run.path / "config.json").write_text('{"name": "a package"}')
        with pytest.raises(StoreError, match=r"is no run: its config\.json describes none"):
            load_run(run.path)

    def test_a_changed_configuration_is_refused(self, run):
        rewrite(run.path / "config.json", config={"seed": 5})
        for read in (lambda: load_run(run.path), lambda: open_run(run.path.parent, CONFIG, 1)):
            with pytest.raises(StoreError, match=r"config\.json is damaged: it does not match its digest"):
                read()

    def test_a_folder_without_digests_has_the_name_of_its_configuration(self, run):
        rewrite(without_digests(run).path / "config.json", config={"seed": 5})
        name = config_hash({"seed": 5}, 1, RESULTS_VERSION)
        with pytest.raises(StoreError, match=f"has the configuration of run {name}; rename the folder to"):
            load_run(run.path)

    def test_a_missing_root_is_told(self, tmp_path):
        for read in (find_runs, survey):
            with pytest.raises(StoreError, match=r"nowhere is not a folder; compare and train make one"):
                read(tmp_path / "nowhere")
        with pytest.raises(StoreError, match="no run 'abc' in"):
            resolve_run(tmp_path / "nowhere", "abc")
        with pytest.raises(StoreError, match=r"nowhere is not a folder\.$"):
            load_run(tmp_path / "nowhere")


class TestNames:
    def test_an_id_its_beginning_or_a_path_name_a_run(self, run):
        root = run.path.parent
        for name in (run.id, run.id[:3], str(run.path)):
            assert resolve_run(root, name) == run

    @pytest.mark.parametrize("name", ["zz", "", "*", "[", "/nowhere/at/all", "../runs/*"])
    def test_an_unknown_name_is_told(self, run, name):
        with pytest.raises(StoreError, match=rf"no run '.*' in .*, which holds {run.id}"):
            resolve_run(run.path.parent, name)

    def test_a_folder_that_is_no_run_is_told(self, run):
        with pytest.raises(StoreError, match=r"is no run: it has no config\.json"):
            resolve_run(run.path.parent, str(run.path.parent))

    def test_an_ambiguous_beginning_lists_the_candidates(self, run):
        twin = run.path.with_name(run.id + "0")
        twin.mkdir()
        with pytest.raises(StoreError, match=f"'{run.id[:4]}' begins several runs: {run.id}, {twin.name}"):
            resolve_run(run.path.parent, run.id[:4])
        assert resolve_run(run.path.parent, run.id) == run


WRITES = {
    "table": lambda run: run.write_frame("metrics", pl.DataFrame({"x": range(5000)})),
    "tensors": lambda run: run.write_tensors("weights", {"x": torch.randn(5000)}, {}),
    "manifest": lambda run: run.finish({"names": ["x" * 99] * 99}),
}
REFUSALS = {
    errno.ENOSPC: "the disk is full; free some space and run the same command again",
    errno.EROFS: "the file system is read-only; choose another place",
    errno.EACCES: "permission is denied; choose another place",
}


@contextmanager
def files_no_larger_than(n_bytes: int):
    resource = pytest.importorskip("resource")  # Windows has none.
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def refusing(number: int):
    def refuse(*args: object) -> None:
        raise OSError(number, os.strerror(number))

    return refuse


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
class TestRefusedWrites:
    @pytest.mark.parametrize("step", ["open", "fsync", "replace"])
    @pytest.mark.parametrize("number", REFUSALS)
    def test_the_way_out_is_told_and_nothing_is_lost(self, run, monkeypatch, write, step, number):
        before = contents(run)
        with monkeypatch.context() as patch:
            patch.setattr(files.os, step, refusing(number))
            with pytest.raises(StoreError, match=f"cannot write .*: {REFUSALS[number]}") as error:
                write(run)
        assert one_line(error)
        assert contents(run) == before

    def test_a_write_that_ends_half_way_leaves_the_old_file(self, run, write):
        before = contents(run)
        with files_no_larger_than(1000), pytest.raises(StoreError, match=r"cannot write .*: File too large"):
            write(run)
        assert results(contents(run)) == results(before)
        assert run.verify()


class TestPlaces:
    @pytest.mark.parametrize("number", REFUSALS)
    def test_a_root_that_cannot_be_written(self, tmp_path, monkeypatch, number):
        monkeypatch.setattr(Path, "mkdir", lambda *args, **kwargs: refusing(number)())
        with pytest.raises(StoreError, match=f"cannot write .*: {REFUSALS[number]}"):
            open_run(tmp_path, CONFIG, 1)

    def test_a_file_in_the_place_of_the_root(self, tmp_path):
        (tmp_path / "runs").write_text("mine")
        with pytest.raises(StoreError, match="a file stands where a folder should; choose another place"):
            open_run(tmp_path / "runs", CONFIG, 1)
        assert (tmp_path / "runs").read_text() == "mine"

    def test_a_folder_that_cannot_be_read_is_one_broken_run(self, run, monkeypatch):
        other = open_run(run.path.parent, {"seed": 1}, 1)
        read = Path.read_bytes
        hidden = run.path / "config.json"
        monkeypatch.setattr(
            Path, "read_bytes", lambda path: refusing(errno.EACCES)() if path == hidden else read(path)
        )
        assert find_runs(run.path.parent) == [other]
        ((_, reason),) = survey(run.path.parent)[1]
        assert reason == f"cannot read {hidden}: permission is denied; choose another place."


class TestLock:
    def test_a_block_inside_one_that_holds_it_goes_on(self, run):
        lock = run.path / ".lock"
        with run.lock():
            with Run(run.path.parent / "." / run.id).lock(stop=lambda: pytest.fail("it waits for itself")):
                assert lock.exists()
            assert lock.exists()
        assert not lock.exists()

    def test_after_it_the_run_is_locked_anew(self, run):
        for _ in range(2):
            with run.lock(), (run.path / ".lock").open("rb") as other:
                assert take_lock(other.fileno()) is False


class TestNamesOfFolders:
    def test_a_folder_whose_name_is_no_text_is_refused_in_a_line(self, tmp_path):
        root = tmp_path / "odd\udcff"
        for use in (lambda: open_run(root, CONFIG, 1), lambda: load_run(root), lambda: survey(root)):
            with pytest.raises(StoreError, match=r"cannot use .*odd\\udcff.*: its name is not UTF-8; choose"):
                use()

    def test_a_stray_file_or_folder_costs_nothing_else(self, run):
        try:
            (run.path / "\udcff.parquet").touch()
            (run.path.parent / "\udcff").mkdir()
        except OSError:
            pytest.skip("This file system takes only names in UTF-8.")
        runs, broken = survey(run.path.parent)
        assert runs == [run]
        assert [(path.name, "its name is not UTF-8" in reason) for path, reason in broken] == [
            ("\\udcff", True)
        ]
        assert run.verify()


class TestTemporaries:
    def temporary(self, run: Run, name: str) -> Path:
        path = run.path / f"{files.TEMPORARY}{name}-metrics.parquet"
        path.write_bytes(b"half")
        return path

    def test_those_of_the_dead_are_swept_and_those_of_the_living_stay(self, run):
        left = [self.temporary(run, "0123456789abcdef"), self.temporary(run, "host-1-0123456789abcdef")]
        others = [self.temporary(run, name) for name in ("mine", "0123456789abcde")]
        living = self.temporary(run, "fedcba9876543210")
        with living.open("rb") as owner:
            assert take_lock(owner.fileno())
            open_run(run.path.parent, CONFIG, 1)
            assert living.exists()
        assert not any(path.exists() for path in left)
        assert all(path.exists() for path in others)
        open_run(run.path.parent, CONFIG, 1)
        assert not living.exists()

    def test_a_folder_being_made_by_another_process_is_joined(self, run):
        for path in run.path.iterdir():
            path.unlink()
        living = self.temporary(run, "fedcba9876543210")
        (run.path / ".lock").touch()
        with living.open("rb") as owner:
            assert take_lock(owner.fileno())
            assert open_run(run.path.parent, CONFIG, 1).config["seed"] == 0

    def test_half_a_table_of_another_process_is_no_damage(self, run):
        run.finish({"test_accuracy": 0.5})
        left = self.temporary(run, "0123456789abcdef")
        assert load_run(run.path).verify()
        assert left.stem not in run.frames
        assert left.name not in packed(run).files
