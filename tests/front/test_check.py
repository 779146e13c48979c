"""A folder of runs is checked byte by byte, and what is damaged is moved aside and trained again."""

from pathlib import Path

import polars as pl
import pytest
from tests.figures.synthetic import make_run
from tests.store.old import without_digests

import spectrope as sp
from spectrope.cli import main
from spectrope.core import StoreError
from spectrope.store import check_folders, find_runs, set_aside
from spectrope.store.locks import take_lock


@pytest.fixture
def root(tmp_path):
    for encoding in ("rope", "nope", "alibi"):
        make_run(tmp_path / "runs", encoding)
    return tmp_path / "runs"


def damage(run):
    path = run.path / "ablation.parquet"
    turned = bytearray(path.read_bytes())
    turned[len(turned) // 2] ^= 1
    path.write_bytes(turned)
    return run


def test_sound_damaged_and_old_runs_are_told_apart(root):
    sound, old, broken = find_runs(root)
    without_digests(old)
    damage(broken)
    (root / "empty").mkdir()
    (root / ".hidden").mkdir()
    states = {one.path.name: one.state for one in check_folders(root)}
    assert states == {sound.id: "verified", old.id: "unverified", broken.id: "damaged", "empty": "no run"}
    checked = sp.check_runs(root)
    assert "3 folders: 1 verified, 1 with files that have no digest" in str(checked)
    assert "Left alone, as no run: 1 other folder." in " ".join(str(checked).split())
    assert [checked.count(state) for state in ("verified", "unverified", "damaged", "no run")] == [1, 1, 1, 1]
    row = checked.to_frame().row(by_predicate=pl.col("run") == broken.id, named=True)
    assert "does not match its digest" in row["reason"]
    assert len(find_runs(root)) == 3  # A check moves nothing.


def test_repair_leaves_other_folders_where_they_are(root):
    (root / "docs").mkdir()
    (root / "docs" / "page.md").write_text("kept")
    (root / "0123456789ab").mkdir()  # Named like a run: its making was interrupted.
    assert sp.check_runs(root, repair=True).moved == (root / ".damaged" / "0123456789ab",)
    assert (root / "docs" / "page.md").read_text() == "kept"


def test_a_damaged_run_is_moved_aside_as_often_as_it_is_damaged(root):
    broken = damage(find_runs(root)[0])
    checked = sp.check_runs(root, repair=True)
    assert checked.moved == (root / ".damaged" / broken.id,)
    assert "trains it again" in str(checked)
    assert [one.state for one in check_folders(root)] == ["verified", "verified"]
    (root / broken.id).mkdir()
    assert set_aside(root / broken.id) == root / ".damaged" / f"{broken.id}-2"


def test_files_that_a_finished_run_has_lost_are_damage(tmp_path):
    run = sp.train("nope", epochs=1, n_examples=60, root=tmp_path, watch=sp.unwatched)
    sp.ablate(run, watch=sp.unwatched)
    (run.path / "ablation.parquet").unlink()  # It can be measured again.
    assert sp.check_runs(tmp_path).count("verified") == 1
    for name in ("metrics.parquet", "weights.safetensors"):
        content = (run.path / name).read_bytes()
        (run.path / name).unlink()
        (folder,) = check_folders(tmp_path)
        assert folder.state == "damaged"
        assert folder.reason == f"{run.path / name} is lost; move its folder away and run it again."
        if name.startswith("weights"):
            with pytest.raises(StoreError, match="has lost its weights; move its folder away and train it"):
                sp.load_model(run)
        (run.path / name).write_bytes(content)
    assert sp.check_runs(tmp_path).count("verified") == 1


def test_a_run_that_another_process_holds_is_not_moved(root, capsys):
    broken = damage(find_runs(root)[0])
    with (broken.path / ".lock").open("wb") as other:
        assert take_lock(other.fileno())
        checked = sp.check_runs(root, repair=True)
    assert (checked.moved, checked.in_use) == ((), (broken.path,))
    assert f"In use by another process, and left where they are: {broken.id}." in str(checked)
    assert sp.check_runs(root, repair=True).moved == (root / ".damaged" / broken.id,)
    assert not (root / ".damaged" / broken.id / ".lock").exists()


def test_a_folder_that_may_not_be_looked_into_is_no_run(root, monkeypatch):
    (root / "lost+found").mkdir()
    exists = Path.exists

    def forbidden(path):
        if path.parent.name == "lost+found":
            raise PermissionError
        return exists(path)

    monkeypatch.setattr(Path, "exists", forbidden)
    assert sp.check_runs(root).count("no run") == 1


def test_the_exit_code_is_the_answer(root, capsys):
    where = ("--runs", str(root))
    assert main(("runs", "--check", *where)) == 0
    runs = find_runs(root)
    without_digests(runs[0])
    assert main(("runs", "--check", *where)) == 3
    damage(runs[1])
    assert main(("runs", "--check", *where)) == 1
    assert runs[1].id in capsys.readouterr().out
    assert main(("runs", "--check", "--repair", *where)) == 3
    assert main(("runs", "--repair", *where)) == 2
    assert "Runs.repair must come with check" in capsys.readouterr().err


def test_what_a_damaged_run_was_is_told_where_its_configuration_is_whole(tmp_path):
    run = sp.train("nope", epochs=1, n_examples=60, root=tmp_path, watch=sp.unwatched)
    other = sp.train("nope", seed=1, epochs=1, n_examples=60, root=tmp_path, watch=sp.unwatched)
    for one in (run, other):
        (one.path / "manifest.json").write_text("{")
    (other.path / "config.json").write_text("{")
    labels = dict(sp.check_runs(tmp_path).to_frame().select("run", "trained again as").rows())
    assert labels == {run.id: "distance/nope/seed 0", other.id: "unknown"}


def test_wrong_arguments_are_told_in_a_line(tmp_path):
    with pytest.raises(StoreError, match="is not a folder"):
        sp.check_runs(tmp_path / "nowhere")
