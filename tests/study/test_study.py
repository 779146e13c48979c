"""Plans over claims, rows that make runs unnecessary, and one plan from end to end."""

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
import torch
from tests.study.made import rows_of

from spectrope.cli import BAD_INPUT, main
from spectrope.console.terminal import console
from spectrope.core.errors import ConfigError
from spectrope.lab.engines.local import Local, execute
from spectrope.lab.job import Job
from spectrope.lab.training.scales import SCALES
from spectrope.store import find_runs
from spectrope.study.claim import chosen_claims
from spectrope.study.claims.contraction import ContractionClaim
from spectrope.study.claims.distance_ordering import DistanceOrdering
from spectrope.study.claims.extrapolation import Extrapolation
from spectrope.study.claims.rope_with_absolute import RoPEWithAbsolute
from spectrope.study.claims.single_head import SingleHead
from spectrope.study.rows import StudyRows
from spectrope.study.study import Study, carry_out, harvest, merged, outstanding, usual_precision


@pytest.fixture
def tiny(monkeypatch):
    preset = SCALES["mini"]["distance"]
    model = replace(preset.model, d_model=16, n_heads=2, n_layers=2, d_ff=16)
    training = replace(preset.training, epochs=1, batch_size=32)
    small = replace(preset, model=model, training=training, n_examples=120)
    monkeypatch.setitem(
        SCALES, "tiny", {"distance": small, "counting": replace(small, task=SCALES["mini"]["counting"].task)}
    )
    monkeypatch.setattr(console, "width", 200)
    return "tiny"


def study(*claims, seeds=(0, 1), scale="mini", conditions=("controlled",)):
    return Study(claims, conditions, scale, seeds)


def test_runs_that_claims_share_come_once_with_all_tables():
    spectra, longer = ContractionClaim(), Extrapolation()
    jobs = study(spectra, longer).jobs()
    assert len(jobs) == len({job.experiment for job in jobs}) == 4 * (7 + 8 - 1)  # Four seeds, RoPE shared.
    tables = {job.experiment: job.tables for job in jobs}
    first = longer.arms("controlled", "mini", longer.explored)
    assert tables[first["rope"]] == ("spectrum", "ablation", "lengths")
    assert tables[first["nope"]] == ("ablation", "lengths")
    (plain,) = {job.tables for job in study(DistanceOrdering()).jobs()}
    assert plain == ()
    assert set(longer.plan("controlled", "mini", (0, 1))) <= set(tables)


def test_a_claim_is_planned_under_the_conditions_that_concern_it():
    cases = study(*chosen_claims(("6", "11")), conditions=("controlled", "released")).cases()
    assert [(claim.number, condition) for claim, condition in cases] == [
        (6, "controlled"),
        (6, "released"),
        (11, "released"),
    ]


@pytest.mark.parametrize("field", ["claims", "conditions", "seeds"])
def test_a_study_of_nothing_is_refused(field):
    with pytest.raises(ConfigError, match=rf"Study\.{field} must be at least one"):
        replace(study(SingleHead()), **{field: ()})


def test_a_study_whose_claims_no_condition_concerns_writes_no_page(tmp_path, capsys):
    page = tmp_path / "page.md"
    words = ["--conditions", "released", "--rows", str(tmp_path), "--out", str(page)]
    assert main(["claims", "report", "9", *words]) == 2
    told = "none of these claims is tested under released; they are tested under controlled, described.\n"
    assert capsys.readouterr().err == f"spectrope: {told}"
    assert not page.exists()


def test_rows_count_as_finished():
    claim = RoPEWithAbsolute()
    jobs = claim.jobs("controlled", "mini", range(3))
    rows = rows_of(claim, lambda arm, seed: {} if seed < 8 else None, seeds=3)
    assert [job.experiment.seed for job in outstanding(jobs, rows)] == [8, 8]
    longer = [Job(job.experiment, ("lengths",)) for job in jobs]
    assert len(outstanding(merged([*jobs, *longer]), rows)) == 6


def test_a_surprise_is_checked_on_fresh_seeds_alone():
    claim = RoPEWithAbsolute()
    gaps = {"alone": (40.0, 1.0, 1.0), "both": (1.0, 40.0, 1.0)}
    rows = rows_of(
        claim,
        lambda arm, seed: {"gaps": gaps[arm] if seed < 12 else tuple(reversed(gaps[arm]))},
        seeds=12,
    )
    (first,) = study(claim, seeds=tuple(range(3))).verdicts(rows)  # Twice as many: six.
    (fresh,) = study(claim, seeds=tuple(range(3, 6))).verdicts(rows)
    assert (first.headline.word, first.n_seeds, fresh.n_seeds) == ("reproduced", 6, 6)
    assert fresh.findings[0].word == "contradicted"
    assert study(claim, seeds=tuple(range(3, 6))).jobs()[0].experiment.seed == 12


def test_a_plan_from_end_to_end(tiny, tmp_path, capsys):
    where = ["--rows", str(tmp_path / "rows"), "--runs", str(tmp_path / "runs")]
    words = ["claims", "run", "6", "--scale", tiny, "--seeds", "0", "--conditions", "controlled"]
    words += [*where, "--device", "cpu", "--workers", "1"]
    assert main([*words, "--dry-run", "--workers", "16"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "2 runs to do" in told
    assert "2 at a time" in told
    assert "These times are estimates of training" in told
    assert not list(tmp_path.iterdir())
    assert main(words) == 0
    out = capsys.readouterr().out
    assert "2 of 2: distance/sum/seed 0, held-out" in out
    assert "not testable here" in out
    rows = StudyRows.load(tmp_path / "rows" / "tiny.jsonl")
    assert len(rows) == 2
    assert main([*words, "--runs", str(tmp_path / "elsewhere")]) == 0
    assert "0 runs to do" in capsys.readouterr().out
    assert not (tmp_path / "elsewhere").exists()
    verdict = RoPEWithAbsolute().judge(rows, "controlled", tiny)
    assert verdict.word == "not testable here"
    assert main(["claims", "list", "6", "--scale", tiny, *where[:2]]) == 0
    assert "controlled: " in capsys.readouterr().out


def no_json(run):
    (run / "config.json").write_text("{")


def no_gaps(run):
    pl.DataFrame({"layer": [1]}).write_parquet(run / "deposit.parquet")


@pytest.mark.parametrize("damage", [no_json, no_gaps])
def test_a_damaged_run_is_named_and_the_others_are_judged(tiny, tmp_path, capsys, damage):
    claim, runs = RoPEWithAbsolute(), tmp_path / "runs"
    carry_out(claim.jobs("controlled", tiny, (0,))[:1], StudyRows(), runs, Local("cpu"))
    (damaged,) = runs.iterdir()
    damage(damaged)
    words = ["claims", "run", "6", "--scale", tiny, "--seeds", "0", "--conditions", "controlled"]
    words += ["--rows", str(tmp_path), "--runs", str(runs), "--device", "cpu", "--workers", "1"]
    assert main(words) == BAD_INPUT
    told = capsys.readouterr()
    left_out, failed = told.err.splitlines()
    assert f"left out: {damaged.name}: " in left_out
    assert damaged.name in failed
    assert "rope-with-absolute" in told.out.partition("Verdicts at scale tiny")[2]
    assert len(StudyRows.load(tmp_path / "tiny.jsonl")) == 1


def test_a_dry_run_counts_finished_runs_and_writes_nothing(tiny, tmp_path, capsys):
    carry_out(
        RoPEWithAbsolute().jobs("controlled", tiny, (0, 1)), StudyRows(), tmp_path / "runs", Local("cpu")
    )
    words = ["claims", "run", "6", "--scale", tiny, "--seeds", "0", "--conditions", "controlled", "--dry-run"]
    words += ["--rows", str(tmp_path / "rows"), "--runs", str(tmp_path / "runs")]
    assert main(words) == 0
    assert "0 runs to do" in capsys.readouterr().out
    assert not (tmp_path / "rows").exists()


@pytest.mark.parametrize(("asked", "taken"), [("auto", "bfloat16"), ("float32", "float32")])
def test_what_is_missing_is_run_in_the_precision_of_most_rows(tiny, tmp_path, capsys, asked, taken):
    claim, rows = RoPEWithAbsolute(), StudyRows(tmp_path / "tiny.jsonl")
    first, *others = claim.jobs("controlled", tiny, (0,))
    carry_out([replace(first, precision="bfloat16")], rows, tmp_path / "runs", Local("cpu"))
    words = ["claims", "run", claim.kind, "--scale", tiny, "--seeds", "0", "--conditions", "controlled"]
    words += ["--rows", str(tmp_path), "--runs", str(tmp_path / "runs"), "--device", "cpu"]
    assert main([*words, "--workers", "1", "--precision", asked]) == 0
    assert f"do not set it: {taken}." in capsys.readouterr().out
    rows = StudyRows.load(tmp_path / "tiny.jsonl")
    assert [rows.get(job.experiment).facts["precision"] for job in others] == [taken] * len(others)


def test_a_precision_that_no_run_takes_is_refused(tmp_path, capsys):
    words = ["claims", "run", "grok-coverage", "--seeds", "0", "--rows", str(tmp_path), "--dry-run"]
    assert main([*words, "--precision", "bfloat16"]) == BAD_INPUT
    told = "--precision bfloat16: no run of these claims leaves it open."
    assert told in capsys.readouterr().err
    assert main(words) == 0
    assert "do not set it" not in capsys.readouterr().out


def test_the_usual_precision_is_that_of_most_rows_that_leave_it_open():
    assert usual_precision(StudyRows()) == "auto"
    assert usual_precision(rows_of(RoPEWithAbsolute(), lambda arm, seed: {}, seeds=1)) == "float32"
    rows = StudyRows()
    for row in rows_of(RoPEWithAbsolute(), lambda arm, seed: {}, seeds=1):
        one = row.experiment
        rows.add(replace(row, experiment=replace(one, training=replace(one.training, precision="float32"))))
    assert usual_precision(rows) == "auto"


def test_runs_of_a_comparison_are_taken_up(tiny, tmp_path, capsys):
    claim = RoPEWithAbsolute()
    plan = claim.plan("controlled", tiny, (0,))
    stranger = replace(plan[0], n_test=20)
    runs = execute([*plan, stranger], tmp_path / "runs", device="cpu")
    damaged = Path(runs[1].path) / "deposit.parquet"
    damaged.write_bytes(damaged.read_bytes()[:40])
    unread = Path(runs[2].path) / "metrics.parquet"
    unread.write_bytes(b"\xff" * 200 + unread.read_bytes()[200:])
    where = ["--rows", str(tmp_path), "--runs", str(tmp_path / "runs")]
    assert main(["claims", "harvest", "6", "--scale", tiny, *where]) == 0
    said = capsys.readouterr()
    assert "1 new row from" in said.out
    assert f"left out: {runs[1].id}: " in said.err
    assert runs[2].id not in said.err
    assert main(["claims", "harvest", "6", "--scale", tiny, *where]) == 0
    assert "0 new rows" in capsys.readouterr().out
    assert [row.experiment for row in StudyRows.load(tmp_path / "tiny.jsonl")] == plan[:1]


def test_a_run_that_is_made_again_has_what_its_earlier_row_had():
    claim = RoPEWithAbsolute()
    rows = rows_of(claim, lambda arm, seed: {}, seeds=1)
    wanted = [Job(one, ("lengths",)) for one in claim.plan("controlled", "mini", (0,))]
    assert {job.tables for job in outstanding(wanted, rows)} == {("lengths", "ablation")}


def test_a_renamed_run_folder_is_named_and_adds_nothing(tiny, tmp_path, capsys):
    jobs = RoPEWithAbsolute().jobs("controlled", tiny, (0,))
    carry_out(jobs, StudyRows(), tmp_path / "runs", Local("cpu"))
    first, second = (Path(run.path) for run in find_runs(tmp_path / "runs"))
    first.rename(tmp_path / "runs" / f"{first.name}-copy")
    where = ["--rows", str(tmp_path / "rows"), "--runs", str(tmp_path / "runs")]
    assert main(["claims", "harvest", "6", "--scale", tiny, *where]) == 0
    said = capsys.readouterr()
    assert "1 new row from" in said.out
    (told,) = (line for line in said.err.splitlines() if f"left out: {first.name}-copy: " in line)
    assert f"has the configuration of run {first.name}; rename the folder to {first.name}" in told
    assert [row.run for row in StudyRows.load(tmp_path / "rows" / "tiny.jsonl")] == [second.name]


def test_a_run_that_would_take_the_place_of_a_row_without_adding_to_it_is_left_alone(tiny, tmp_path):
    (job, *_) = RoPEWithAbsolute().jobs("controlled", tiny, (0,))
    carry_out([job], StudyRows(), tmp_path / "runs", Local("cpu"))
    taken = StudyRows()
    assert harvest(tmp_path / "runs", [job.experiment], taken) == (1, [])
    (row,) = taken
    tables = {"lengths": pl.DataFrame({"factor": [1.0], "accuracy": [1.0]})}
    other = StudyRows.of([replace(row, facts=row.facts | {"finished_at": "another day"}, tables=tables)])
    assert harvest(tmp_path / "runs", [job.experiment], other) == (0, [])
    fewer = StudyRows.of([replace(row, tables={})])
    assert harvest(tmp_path / "runs", [job.experiment], fewer) == (1, [])


def test_what_a_run_folder_holds_is_not_run_again(tiny, tmp_path):
    jobs = RoPEWithAbsolute().jobs("controlled", tiny, (0,))
    rows = StudyRows(tmp_path / "rows.jsonl")
    carry_out(jobs, rows, tmp_path / "runs", Local("cpu"))
    before = {run.id: run.manifest["finished_at"] for run in find_runs(tmp_path / "runs")}
    again = StudyRows()
    found, complaints = harvest(tmp_path / "runs", [job.experiment for job in jobs], again)
    assert (found, complaints) == (2, [])
    carry_out(jobs, again, tmp_path / "runs", Local("cpu"))
    assert {run.id: run.manifest["finished_at"] for run in find_runs(tmp_path / "runs")} == before


def test_a_checkpoint_that_a_kill_left_in_a_finished_run_is_removed(tiny, tmp_path):
    where = ["--rows", str(tmp_path / "rows"), "--runs", str(tmp_path / "runs")]
    words = ["claims", "run", "6", "--scale", tiny, "--seeds", "0:1", *where]
    wanted, stranger = RoPEWithAbsolute().plan("controlled", tiny, (0, 1))[0::2]
    runs = execute([wanted, stranger], tmp_path / "runs", device="cpu")
    for run in runs:
        run.write_tensors("checkpoint", {"step": torch.zeros(1)}, {})
    assert main([*words, "--dry-run"]) == 0
    assert all(run.has_tensors("checkpoint") for run in runs)
    assert main(words) == 0
    assert [run.has_tensors("checkpoint") for run in runs] == [False, True]


@pytest.mark.parametrize(
    ("action", "option", "value", "rule"),
    [
        (
            "run",
            "seeds",
            "six",
            "--seeds takes numbers below 2^63, or ranges such as 0:6 for 0 to 5; got 'six'",
        ),
        ("run", "workers", 0, "RunClaims.workers must be at least 1; got 0"),
        ("list", "seeds", "0:100000", "List.seeds must be between 1 and 200 seeds; got ('0:100000',)"),
        ("harvest", "seeds", "3:3", "--seeds takes ranges of 1 to 1,000,000 seeds; got '3:3'"),
    ],
)
def test_bad_options_are_refused(action, option, value, rule, tmp_path, capsys):
    words = ["--out", str(tmp_path / "page.md")] if action == "report" else []
    assert main(["claims", action, "6", f"--{option}", str(value), "--rows", str(tmp_path), *words]) == 2
    assert rule in capsys.readouterr().err


def test_a_condition_given_twice_counts_once(tmp_path, capsys):
    words = ["claims", "run", "6", "--conditions", "controlled", "controlled", "--rows", str(tmp_path)]
    assert main([*words, "--dry-run", "--runs", str(tmp_path / "runs")]) == 0
    assert capsys.readouterr().out.count("6 rope-with-absolute   controlled") == 1


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (
            ("--engine", "ray", "--device", "cpu"),
            "--device is for --engine local; with --engine ray, use --gpus",
        ),
        (("--gpus", "0.5"), "--gpus is for --engine ray; with --engine local, use --device."),
        (("--address", "auto"), "--address is for --engine ray"),
    ],
)
def test_options_of_the_other_engine_are_refused(options, told, capsys):
    assert main(["claims", "run", "6", *options]) == 2
    assert told in capsys.readouterr().err


def test_a_claim_about_something_rare_is_planned_on_more_seeds():
    own = study(RoPEWithAbsolute(), DistanceOrdering(), seeds=(2, 3))
    assert {job.experiment.seed for job in own.jobs_of(RoPEWithAbsolute(), "controlled")} == {10, 11, 12, 13}
    assert {job.experiment.seed for job in own.jobs_of(DistanceOrdering(), "controlled")} == {8, 9}


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("seeds", (-6, 0), "none below 0"),
        ("conditions", ("controled",), "unknown condition 'controled'; did you mean controlled"),
        ("scale", "huge", "unknown scale 'huge'"),
    ],
)
def test_what_a_study_cannot_mean_is_refused(field, value, told):
    with pytest.raises(ConfigError, match=told):
        replace(study(SingleHead()), **{field: value})


@pytest.mark.parametrize("claim", chosen_claims(()), ids=lambda claim: claim.kind)
def test_other_seeds_of_a_study_are_other_seeds_of_each_claim(claim):
    early, late = (
        Study((claim,), claim.conditions, "mini", tuple(range(first, first + 6))) for first in (0, 6)
    )
    first = claim.conditions[0]
    assert early.seeds_of(claim, first) == tuple(range(6 * claim.times))
    assert not set(early.seeds_of(claim, first)) & set(late.seeds_of(claim, first))
