"""Results that were committed: today's code gives their runs the same names, data and weights, or says so."""

from pathlib import Path
from typing import Any

import pytest
import torch

from spectrope.lab.evaluation.score import score
from spectrope.lab.experiments import MARK, read_experiment
from spectrope.lab.runs import DATA_VERSION, build_model
from spectrope.lab.training.config import Experiment
from spectrope.store import RESULTS_VERSION
from spectrope.store.numbering import FIELD
from spectrope.store.records import read_records
from spectrope.study.rows import StudyRow, run_name

ROWS = Path(__file__).parents[2] / "results" / "mini.jsonl"
VERSIONS = DATA_VERSION, RESULTS_VERSION
Record = dict[str, Any]


@pytest.fixture(scope="module")
def records() -> list[Record]:
    """Those of today's versions, which are no longer the file's once a version has been raised."""
    if not ROWS.exists():
        pytest.skip("no results are committed here")
    found, _ = read_records(ROWS)
    current = [one for one in found if (one["data_version"], one["results_version"]) == VERSIONS]
    return current or pytest.skip("the results that are committed are of other versions")


def kind_of(record: Record) -> tuple[str, ...]:
    config = record["config"]
    if MARK in config:
        return (config[MARK],)
    return config["task"]["kind"], config["encoding_name"], config["condition"]


def test_the_names_of_runs_are_what_they_were(records):
    one_of_each = {kind_of(record): record for record in reversed(records)}
    assert len(one_of_each) > 1
    for kind, record in one_of_each.items():
        assert run_name(read_experiment(record["config"])) == record["run"], kind


def test_rows_that_count_layers_and_heads_from_one_are_converted_once(records):
    one_of_each = {(*kind_of(record), *record["tables"]): record for record in reversed(records)}
    converted: set[str] = set()
    for record in one_of_each.values():
        row = StudyRow.read(record)
        assert row.run == record["run"] == run_name(row.experiment)
        assert StudyRow.read(row.record()).run == record["run"]
        for name, table in row.tables.items():
            for column in {"layer", "head"} & set(table.columns):
                first = record.get(FIELD, 1)
                assert [number + first for number in table[column]] == record["tables"][name][column]
                assert StudyRow.read(row.record()).tables[name][column].equals(table[column])
                assert column == "head" or set(table[column]) == set(
                    range(getattr(row.experiment, "model", row.experiment).n_layers)
                )
                converted.add(name)
    assert converted >= {"ablation", "deposit", "spectrum", "start", "head_gradients", "head_growth"}


@pytest.mark.parametrize("kind", [("distance", "rope", "controlled"), ("counting", "t5", "controlled")])
def test_untrained_models_score_what_they_did(records, kind):
    record = next(record for record in records if kind_of(record) == kind)
    one = read_experiment(record["config"])
    assert isinstance(one, Experiment)
    metrics = record["tables"]["metrics"]
    assert (metrics["epoch"][1], metrics["split"][1]) == (0, "test")
    held_out = one.task.build().sample(one.training.eval_examples, one.seed, start=one.n_train)
    found = score(build_model(one, torch.device("cpu")), held_out)
    assert found.loss == pytest.approx(metrics["loss"][1], rel=1e-4)
    assert found.accuracy == pytest.approx(metrics["accuracy"][1], abs=1e-3)
