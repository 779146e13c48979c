"""Rows of a corrected condition are withdrawn by name; those of every other one stand, under their ids."""

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from tests.study.made import row

from spectrope.lab.experiments import read_experiment
from spectrope.lab.training.scales import experiment
from spectrope.store.records import append_record, read_records
from spectrope.study.conditions import SWITCHES, THROWN, alone
from spectrope.study.corrections import CORRECTIONS, TABLES, correction_of
from spectrope.study.kept import KEPT
from spectrope.study.rows import StudyRows

ROWS = Path(__file__).parents[2] / "results" / "mini.jsonl"


def earlier(one):
    """The experiment as it was named before its condition was corrected."""
    return replace(one, edition=1)


@pytest.mark.parametrize("encoding", ["rope", "mla"])
@pytest.mark.parametrize("condition", ["described", "released"])
def test_earlier_editions_of_a_condition_are_withdrawn_and_the_present_one_stands(encoding, condition):
    now = experiment("distance", encoding, condition=condition)
    correction = correction_of(earlier(now))
    assert correction is not None
    assert (correction.condition, correction.latent) == (condition, encoding == "mla")
    assert correction_of(now) is None
    assert correction_of(experiment("distance", encoding)) is None


@pytest.mark.parametrize("correction", CORRECTIONS, ids=lambda one: one.name)
def test_a_correction_names_a_condition_or_a_switch_and_one_reason(correction):
    assert correction.condition in {*THROWN, *SWITCHES}
    assert correction.edition >= 2
    assert "\n" not in correction.reason


def test_switches_alone_stand_where_they_meant_what_they_mean():
    rope, mla = experiment("distance", "rope"), experiment("distance", "mla")
    assert all(correction_of(earlier(alone(name, rope))) is None for name in SWITCHES)
    withdrawn = {name for name in SWITCHES if correction_of(earlier(alone(name, mla)))}
    assert withdrawn == {"R13", "R14"}
    assert (
        correction_of(replace(mla, condition="R2")) is not None
    )  # A switch that latent attention no longer has.


def test_a_file_keeps_withdrawn_rows_apart_and_tells_how_many_there_are(tmp_path):
    path = tmp_path / "mini.jsonl"
    stands, falls = experiment("distance", "rope"), experiment("distance", "rope", condition="released")
    old = [row(earlier(replace(falls, seed=seed))) for seed in (0, 1)]
    for one in (row(stands), row(falls), *old):
        append_record(path, one.record())
    rows = StudyRows.load(path)
    assert {one.experiment for one in rows} == {stands, falls}
    assert rows.complaints == []
    ((name, count, reason),) = rows.withdrawals.lines()
    assert (name, count) == ("released (all but MLA)", 2)
    assert "betas" in reason
    (runs,) = rows.withdrawals.runs.values()
    assert runs == {one.run: one.experiment for one in old}


def test_a_withdrawn_table_leaves_the_rest_of_its_row(tmp_path):
    record = row(experiment("distance", "rope")).record()
    (name,) = (name for name in TABLES if name.startswith("ablation") and not name.endswith("all"))
    record["tables"][name] = pl.DataFrame({"layer": [0]}).to_dict(as_series=False)
    append_record(tmp_path / "mini.jsonl", record)
    rows = StudyRows.load(tmp_path / "mini.jsonl")
    (kept,) = rows
    assert name not in kept.tables
    assert list(rows.withdrawals.lines()) == [(f"table {name}", 1, TABLES[name])]
    assert TABLES.keys().isdisjoint(KEPT)


def test_what_is_committed_stands_under_controlled_and_switches_alone():
    if not ROWS.exists():
        pytest.skip("no results are committed here")
    records, _ = read_records(ROWS)
    kinds = {(one["config"].get("encoding_name"), one["config"].get("condition")): one for one in records}
    for (encoding, condition), record in kinds.items():
        one = read_experiment(record["config"])
        no_switch = encoding == "mla" and condition in ("R2", "R13", "R14")
        falls = (condition in ("described", "released") or no_switch) and getattr(one, "edition", 1) == 1
        assert (correction_of(one) is not None) == falls, (encoding, condition)
