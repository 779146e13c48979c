"""What `spectrope claims` makes of its options."""

from pathlib import Path

import pytest
from tests.cli.typed import refused
from tests.study.made import rows_of

from spectrope.cli import main
from spectrope.lab.engines.local import Local
from spectrope.lab.engines.ray import Ray
from spectrope.study import pilots
from spectrope.study import study as places
from spectrope.study.claims.distance_ordering import DistanceOrdering
from spectrope.study.commands._run import RunClaims
from spectrope.study.rows import StudyRows

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("command", "engine"),
    [
        (
            RunClaims(engine="ray", address="auto", workers=3, gpus=0.5),
            Ray(address="auto", workers=3, gpus=0.5),
        ),
        (RunClaims(engine="ray", workers=1), Ray()),
        (RunClaims(device="cuda", workers=3), Local("cuda", workers=3)),
        (RunClaims(workers=1), Local()),
    ],
)
def test_options_reach_the_engine(command, engine):
    assert command.chosen_engine() == engine


@pytest.mark.parametrize(
    ("command", "workers"),
    [
        (RunClaims(engine="ray", workers=16), 16),
        (RunClaims(engine="ray", workers=16, gpus=0.25), 4),
        (RunClaims(engine="ray", workers=16, gpus=1.0), 1),
        (RunClaims(engine="ray", workers=16, address="auto"), 1),
        (RunClaims(device="cpu", workers=3), 3),
    ],
)
def test_a_plan_counts_what_goes_on_at_a_time(command, workers):
    assert command._workers == workers


def test_rows_that_cannot_be_written_are_refused_before_anything_is_trained(tmp_path, capsys):
    place = tmp_path / "rows"
    place.write_text("a file")
    assert main(["claims", "run", "4", "--rows", str(place), "--runs", str(tmp_path / "runs")]) == 2
    told = capsys.readouterr()
    assert "a file stands where a folder should" in told.err
    assert "runs to do" not in told.out
    assert not (tmp_path / "runs").exists()


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("words", [("list",), ("report", "--out", "page.md")])
def test_rows_of_a_misspelt_folder_are_refused(tmp_path, capsys, words):
    line = refused(capsys, "claims", *words, "--rows", "resluts")
    assert "--rows resluts is not a folder; `spectrope claims run --rows resluts` makes it." in line
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("here")
def test_an_editable_installation_has_the_rows_of_its_clone(tmp_path, capsys, monkeypatch):
    assert places.BESIDE == ROOT / "results"
    lines = (ROOT / "results" / "mini.jsonl").read_text().splitlines()
    (tmp_path / "mini.jsonl").write_text("\n".join(lines[:3]) + "\n")
    monkeypatch.setattr(places, "BESIDE", tmp_path)
    assert main(["claims", "list", "1"]) == 0
    assert "no folder results here; these are the rows that spectrope" in capsys.readouterr().err


@pytest.mark.usefixtures("here")
def test_outside_a_checkout_the_rows_of_the_package_count(tmp_path, capsys, monkeypatch):
    rows = tmp_path / "installed"
    rows.mkdir()
    lines = (ROOT / "results" / "mini.jsonl").read_text().splitlines()
    (rows / "mini.jsonl").write_text("\n".join(lines[:3]) + "\n")
    monkeypatch.setattr(places, "SHIPPED", rows)
    assert main(["claims", "list", "1"]) == 0
    assert "no folder results here; these are the rows that spectrope" in capsys.readouterr().err
    assert main(["claims", "report", "1", "--out", "page.md"]) == 0
    assert "--rows" not in (tmp_path / "page.md").read_text()
    capsys.readouterr()
    (tmp_path / "results").mkdir()
    assert main(["claims", "list", "1"]) == 0
    assert "comes with" not in capsys.readouterr().err


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("words", [("list",), ("show", "1")])
def test_an_installation_without_rows_says_so(tmp_path, capsys, monkeypatch, words):
    for place in ("SHIPPED", "BESIDE"):
        monkeypatch.setattr(places, place, tmp_path / "none")
    line = refused(capsys, "claims", *words)
    assert "no folder results here, and this installation comes with no rows; use --rows FOLDER." in line


@pytest.mark.usefixtures("here")
def test_a_claim_with_few_seeds_is_listed_by_their_number_in_whole_words(tmp_path, capsys):
    stored = StudyRows.load(tmp_path / "results" / "mini.jsonl")
    for row in rows_of(
        DistanceOrdering(), lambda arm, seed: {"test": 95.0 if arm == "rope" else 40.0}, seeds=2
    ):
        stored.add(row)
    assert main(["claims", "list", "distance-ordering"]) == 0
    listed = " ".join(capsys.readouterr().out.split())
    assert "2 of at least 6 seeds for" in listed
    assert "strongest rival" not in listed


@pytest.mark.usefixtures("here")
def test_a_claim_without_runs_is_listed_as_not_run(tmp_path, capsys):
    (tmp_path / "results").mkdir()
    assert main(["claims", "list", "1"]) == 0
    listed = capsys.readouterr().out
    assert "controlled: not run" in listed
    assert "not testable" not in listed


@pytest.mark.usefixtures("here")
def test_a_file_of_rows_in_place_of_their_folder_is_refused(tmp_path, capsys):
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows" / "mini.jsonl").touch()
    line = refused(capsys, "claims", "list", "--rows", "rows/mini.jsonl")
    assert "--rows rows/mini.jsonl is a file; use --rows rows for its folder." in line


@pytest.mark.usefixtures("here")
def test_a_page_of_one_claim_at_another_scale_and_first_seed_is_written_elsewhere(tmp_path):
    part = ("1", "--scale", "small", "--seeds", "6:12", "--rows", ".")
    assert main(["claims", "report", *part, "--out", "page.md"]) == 0
    assert (tmp_path / "page.md").exists()


@pytest.mark.usefixtures("here")
def test_no_run_counts_before_the_plan_has_its_rate(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(pilots, "plan", lambda: {"mid": {"pilots": {}}})
    line = refused(capsys, "claims", "run", "1", "--scale", "mid")
    assert "scale 'mid' waits for its rates and epochs; `spectrope claims pilots` chooses them" in line
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("name", ["0123456789ab-dirty", "version 0.1.0"])
def test_no_run_at_a_planned_scale_comes_from_code_that_is_not_committed(tmp_path, capsys, monkeypatch, name):
    chosen = {task: {"learning_rate": 0.01, "epochs": 4} for task in ("distance", "counting")}
    monkeypatch.setattr(pilots, "plan", lambda: {"mid": {"pilots": {}, "chosen": chosen}})
    monkeypatch.setattr(pilots, "commit", lambda: name)
    line = refused(capsys, "claims", "run", "1", "--scale", "mid")
    assert f"a row at scale 'mid' counts only if its code is committed, and this is {name}" in line
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("here")
def test_rates_are_not_tuned_where_pilots_choose_them(capsys):
    line = refused(capsys, "claims", "run", "1", "--scale", "mid", "--tune", "--dry-run")
    assert "--tune is not planned at mid, where pilots choose one rate for all." in line
