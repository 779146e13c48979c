"""Rows: what a run contributes, read back whole, refused by name where it is not one of today's."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
import torch
from polars.testing import assert_frame_equal
from tests.lab.engines.test_local import ignore, tiny
from tests.store.old import counted_from_one, make_old

from spectrope.core.config import config_hash
from spectrope.core.errors import StoreError, UnsupportedError
from spectrope.grokking.config import GrokExperiment, GrokTraining
from spectrope.grokking.models.mlp import ModularMLP
from spectrope.grokking.tasks.modular import ModularConfig
from spectrope.lab.engines.cost import Calibration
from spectrope.lab.engines.local import Local
from spectrope.lab.job import Job, complete
from spectrope.lab.runs import DATA_VERSION
from spectrope.store import RESULTS_VERSION, Run
from spectrope.store.records import append_record
from spectrope.study.rows import FACTS, StudyRow, StudyRows, run_name

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return complete(Job(tiny()), tmp_path_factory.mktemp("runs"), CPU)


def test_a_row_is_read_back_as_it_was(run, tmp_path):
    rows = StudyRows(tmp_path / "mini.jsonl")
    rows.add(StudyRow.of(run))
    (row,) = again = StudyRows.load(tmp_path / "mini.jsonl")
    assert (len(again), again.complaints) == (1, [])
    assert (row.experiment, row.run) == (tiny(), run.id)
    assert row.facts == {name: run.manifest[name] for name in FACTS}
    assert set(row.tables) == {"metrics", "ablation", "deposit"}
    drops = run.frame("ablation").select("layer", "head", "drop", "low", "high")
    assert_frame_equal(row.tables["ablation"], drops, rel_tol=1e-5)
    assert row.tables["deposit"].columns == run.frame("deposit").columns
    assert again.covers(Job(tiny()))
    assert not again.covers(Job(tiny(), ("ablation", "lengths")))
    assert not again.covers(Job(tiny("alibi")))


def test_a_row_that_a_worker_sends_is_read_as_it_was(run):
    row = StudyRow.of(run)
    sent = json.loads(json.dumps(row.record()))
    assert sent["counts_from"] == 0
    assert min(sent["tables"]["ablation"]["head"]) == min(sent["tables"]["deposit"]["layer"]) == 0
    for again in (StudyRow.read(sent), StudyRow.read(StudyRow.read(sent).record())):
        assert (again.run, again.experiment, again.facts) == (row.run, row.experiment, row.facts)
        for name, table in row.tables.items():
            assert_frame_equal(again.tables[name], table, rel_tol=1e-5)


def old_record(row):
    """The record that a version wrote of a row that counted layers and heads from 1."""
    record = row.record()
    tables = {name: counted_from_one(pl.DataFrame(columns)) for name, columns in record["tables"].items()}
    record.pop("counts_from")
    return record | {"tables": {name: table.to_dict(as_series=False) for name, table in tables.items()}}


def test_rows_that_count_from_one_and_from_zero_stand_in_one_file(run, tmp_path):
    path, one = tmp_path / "mini.jsonl", StudyRow.of(run)
    other_one = replace(tiny(), seed=1)
    assert old_record(one)["tables"]["ablation"]["layer"][0] == 1
    append_record(path, old_record(one))
    StudyRows.load(path).add(replace(one, experiment=other_one, run=run_name(other_one)))
    rows = StudyRows.load(path)
    rows.add(replace(one, tables={"lengths": pl.DataFrame({"factor": [1.0], "accuracy": [0.5]})}))
    assert len(path.read_text().splitlines()) == 3
    for again in (rows, StudyRows.load(path)):
        assert again.complaints == []
        assert set(again.get(tiny()).tables) == {"metrics", "ablation", "deposit", "lengths"}
        for experiment in (tiny(), other_one):
            for name in ("ablation", "deposit"):
                assert_frame_equal(again.get(experiment).tables[name], one.tables[name], rel_tol=1e-5)


def test_a_run_that_counts_from_one_gives_the_row_of_today(run, tmp_path):
    old = make_old(Run(Path(shutil.copytree(run.path, tmp_path / run.id))))
    for name, table in StudyRow.of(run).tables.items():
        assert_frame_equal(StudyRow.of(old).tables[name], table)


def test_a_row_is_small(run):
    assert len(json.dumps(StudyRow.of(run).record())) < 6000


def test_a_table_without_its_columns_is_named(run, tmp_path):
    run = Run(Path(shutil.copytree(run.path, tmp_path / run.id)))
    run.write_frame("metrics", pl.DataFrame({"epoch": [0]}))
    with pytest.raises(StoreError, match=f"run {run.id}: table 'metrics' has no column 'step'"):
        StudyRow.of(run)


def test_a_fact_that_an_earlier_row_lacks_is_not_added_with_its_tables(run, tmp_path):
    path = tmp_path / "mini.jsonl"
    first = StudyRow.of(run)
    assert "cpu_seconds" in first.facts
    without = {name: value for name, value in first.facts.items() if name != "cpu_seconds"}
    rows = StudyRows.load(path)
    rows.add(replace(first, facts=without, tables={"metrics": first.tables["metrics"]}))
    rows.add(first)
    (kept,) = StudyRows.load(path)
    assert kept.facts == without
    assert set(kept.tables) == set(first.tables)


def test_a_later_row_adds_its_tables(run, tmp_path):
    rows = StudyRows(tmp_path / "mini.jsonl")
    rows.add(StudyRow.of(run))
    lengths = pl.DataFrame({"factor": [1.0], "accuracy": [0.5], "loss": [float("inf")]})
    rows.add(replace(StudyRow.of(run), tables={"lengths": lengths}))
    (row,) = StudyRows.load(tmp_path / "mini.jsonl")
    assert set(row.tables) == {"metrics", "ablation", "deposit", "lengths"}
    assert row.tables["lengths"]["loss"].to_list() == [None]


def test_two_trainings_of_one_experiment_are_not_mixed(run, tmp_path):
    rows, first = StudyRows(tmp_path / "mini.jsonl"), StudyRow.of(run)
    again = replace(first, facts=first.facts | {"finished_at": "later", "test_accuracy": 0.1})
    rows.add(first)
    rows.add(replace(again, tables={"metrics": first.tables["metrics"]}))  # It has less to say.
    assert rows.get(tiny()).facts["test_accuracy"] == first.facts["test_accuracy"]
    lengths = pl.DataFrame({"factor": [1.0], "accuracy": [0.5]})
    rows.add(replace(again, tables={"metrics": first.tables["metrics"], "lengths": lengths}))
    for kept in (rows, StudyRows.load(tmp_path / "mini.jsonl")):
        (row,) = kept
        assert (row.facts["test_accuracy"], set(row.tables)) == (0.1, {"metrics", "lengths"})


def test_a_run_that_diverged_is_written_without_its_loss(run, tmp_path):
    rows = StudyRows(tmp_path / "mini.jsonl")
    lost = StudyRow.of(run)
    rows.add(replace(lost, facts=lost.facts | {"test_loss": float("nan")}))
    (row,) = StudyRows.load(tmp_path / "mini.jsonl")
    assert row.facts["test_loss"] is None
    assert row.facts["test_accuracy"] == lost.facts["test_accuracy"]


PROGRESS = {
    "step": [1],
    "train_loss": [0.1],
    "train_accuracy": [1.0],
    "test_loss": [0.1],
    "test_accuracy": [1.0],
}


def other(record, **changes):
    changed = {**record, **changes}
    if "config" in changes:
        changed["run"] = config_hash(changed["config"], DATA_VERSION, RESULTS_VERSION)
    return changed


def fact(record, **changes):
    return {**record, "facts": {**record["facts"], **changes}}


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda r: other(r, results_version=0), "has results_version 0, not 1"),
        (lambda r: other(r, data_version=9), "has data_version 9, not 1"),
        (lambda r: other(r, counts_from=2), "has counts_from 2, not 0 or 1"),
        (lambda r: other(r, run="0123456789ab"), "run 0123456789ab has the configuration of run "),
        (
            lambda r: other(r, config=r["config"] | {"colour": 1}),
            "is of another program: Experiment has no field 'colour'",
        ),
        (lambda r: other(r, facts={}), "is no row of a study"),
        (lambda r: other(r, tables=7), "is no row of a study"),
        (lambda r: fact(r, test_accuracy="high"), "test_accuracy is 'high', and has to be a number between"),
        (
            lambda r: fact(r, test_accuracy=7.0),
            "test_accuracy is 7.0, and has to be a number between 0 and 1",
        ),
        (lambda r: fact(r, machine="mine"), "machine is 'mine', and has to be a description"),
        (lambda r: fact(r, precision="float64"), "precision is 'float64', and has to be float32 or bfloat16"),
        (lambda r: fact(r, finished_at=None), "finished_at is None, and has to be text"),
        (lambda r: fact(r, commit="\ud800"), "and has to be text"),
        (lambda r: fact(r, machine={"processor": "\ud800"}), "has to be a description of the machine"),
        (lambda r: other(r, tables={"metrics": {"split": ["\ud800"]}}), "is no row of a study"),
        (
            lambda r: other(r, tables={"head_growth": {"layer": [-1], "head": [1], "energy": [1.0]}}),
            "'layer' that are not between 0 and 1e+12",
        ),
        (lambda r: other(r, tables={"deposit": {"layer": [], "gap": [], "deposit": []}}), "is empty"),
        (lambda r: other(r, tables={"deposit": {"layer": [1]}}), "table 'deposit' has no column 'gap'"),
        (lambda r: other(r, tables={"lengths": {"factor": [1.0], "accuracy": ["a"]}}), "which takes numbers"),
        (lambda r: other(r, tables={"lengths": {"factor": [1.0], "accuracy": [7.0]}}), "not between 0 and 1"),
        (
            lambda r: other(r, tables={"deposit": {"layer": [1], "gap": [1e308], "deposit": [True]}}),
            "has values in its column 'gap' that are not between -100 and 100",
        ),
        (
            lambda r: other(r, tables={"progress": {**PROGRESS, "test_accuracy": [1e308]}}),
            "'test_accuracy' that are not between 0 and 1",
        ),
        (
            lambda r: other(r, tables={"head_growth": {"layer": [1], "head": [1], "energy": [1e308]}}),
            "'energy' that are not between 0 and 1e+60",
        ),
        (
            lambda r: other(r, tables={"progress": {**PROGRESS, "med": [10**30]}}),
            "has Int128 in its column 'med'",
        ),
        (lambda r: fact(r, seconds=1e308), "seconds is 1e+308, and has to be a number between 0 and 1e+12"),
        (lambda r: fact(r, test_loss=10**400), "and has to be a number between -1e+60 and 1e+60"),
        (
            lambda r: other(r, tables={"deposit": {"layer": [1], "gap": [None], "deposit": [True]}}),
            "lacks values",
        ),
        (lambda r: other(r, tables={"wishes": {"layer": [1]}}), "no row has a table 'wishes'"),
    ],
)
def test_what_is_no_row_of_today_is_named_and_left_out(run, tmp_path, change, complaint):
    path = tmp_path / "mini.jsonl"
    append_record(path, change(StudyRow.of(run).record()))
    append_record(path, StudyRow.of(run).record())
    rows = StudyRows.load(path)
    assert len(rows) == 1
    (line,) = map(str, rows.complaints)
    assert line.startswith("mini.jsonl: run ")
    assert complaint in line
    assert rows.lost([tiny()]) == []  # Another row of that run is whole.


def test_a_record_that_is_hardly_one_is_named_too(tmp_path):
    append_record(tmp_path / "mini.jsonl", {"run": [1], "results_version": 1})
    rows = StudyRows.load(tmp_path / "mini.jsonl")
    assert "run [1] has data_version None" in str(rows.complaints[0])
    assert rows.lost([tiny()]) == []


def test_whole_numbers_and_others_are_read_alike(run, tmp_path):
    record = StudyRow.of(run).record()
    table = {"factor": [1, 2], "accuracy": [1, 0]}
    append_record(tmp_path / "mini.jsonl", record | {"tables": {"lengths": table}})
    (found,) = StudyRows.load(tmp_path / "mini.jsonl")
    assert found.tables["lengths"].schema == {"factor": pl.Float64, "accuracy": pl.Float64}


def test_an_ablation_without_its_deposits_counts_as_not_measured(run, tmp_path):
    record = StudyRow.of(run).record()
    assert {"ablation", "deposit"} <= set(record["tables"])
    record["tables"].pop("deposit")
    append_record(tmp_path / "mini.jsonl", record)
    (found,) = StudyRows.load(tmp_path / "mini.jsonl")
    assert "ablation" not in found.tables
    assert not found.covers(Job(found.experiment, ("ablation",)))


def test_no_file_means_no_rows(tmp_path):
    assert len(StudyRows.load(tmp_path / "none.jsonl")) == 0


def test_the_local_engine_keeps_a_row_of_each_job(tmp_path):
    jobs = [Job(tiny("rope")), Job(tiny("nope"))]
    kept: list[StudyRow] = []
    Local("cpu")(jobs, tmp_path, ignore, StudyRow.of, kept.append)
    assert {row.experiment for row in kept} == {job.experiment for job in jobs}
    assert len(kept) == 2


def test_a_job_that_fails_leaves_the_rows_of_the_others(tmp_path):
    damaged = complete(Job(tiny("nope")), tmp_path, CPU)
    (damaged.path / "weights.safetensors").write_bytes(b"")
    jobs = [Job(tiny("nope"), ("lengths",)), Job(tiny("rope"))]
    kept: list[StudyRow] = []
    with pytest.raises(StoreError, match="damaged"):
        Local("cpu")(jobs, tmp_path, ignore, StudyRow.of, kept.append)
    assert [row.experiment for row in kept] == [tiny("rope")]


def test_jobs_of_the_grokking_laboratory_are_done_like_the_others(tmp_path):
    task, training = ModularConfig(p=7, fraction=0.7), GrokTraining(steps=3, evaluate_every=2)
    model = ModularMLP.Config(d_model=8, hidden=8)
    job = Job(GrokExperiment(task=task, model=model, training=training), ())
    assert Job.from_dict(job.to_dict()) == job
    assert Calibration(CPU)(job).training > 0
    kept: list[StudyRow] = []
    Local("cpu")([job], tmp_path, ignore, StudyRow.of, kept.append)
    (row,) = kept
    assert row.experiment == job.experiment
    assert row.tables["progress"]["step"].to_list() == [0, 2, 3]
    with pytest.raises(UnsupportedError, match="a run of laboratory 'grokking' measures itself"):
        Job(job.experiment)
