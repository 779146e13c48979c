"""Facts of a manifest that no training writes are refused when it is read, digest or none."""

import math

import pytest
from tests.store.old import without_digests

from spectrope.core.errors import StoreError
from spectrope.store import Run, open_run

FACTS = {"test_accuracy": 0.5, "test_loss": None, "seconds": 1.5, "finished_at": "2026-01-01", "machine": {}}


@pytest.fixture
def run(tmp_path) -> Run:
    return open_run(tmp_path, {"seed": 0}, 1)


def test_what_a_training_writes_is_read(run):
    run.finish({**FACTS, "other": [1]})
    assert {name: run.manifest[name] for name in FACTS} == FACTS


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("test_accuracy", 17.5, "test_accuracy is 17.5, and has to be a number between 0 and 1"),
        ("train_accuracy", -0.1, "train_accuracy is -0.1"),
        ("bayes_accuracy", "1", "bayes_accuracy is '1'"),
        ("test_accuracy", True, "test_accuracy is True"),
        ("test_loss", 1e301, "test_loss is 1e"),
        ("seconds", -1, "seconds is -1"),
        ("n_parameters", 10**400, "n_parameters is 1000"),
        ("finished_at", 7, "finished_at is 7, and has to be text"),
        ("machine", "a large one", "machine is 'a large one', and has to be a description of the machine"),
    ],
)
@pytest.mark.parametrize("digests", [True, False])
def test_other_facts_are_refused(run, name, value, rule, digests):
    run.finish({**FACTS, name: value})
    if not digests:
        without_digests(run)
    with pytest.raises(StoreError, match=f"manifest.json is damaged: {rule}.*"):
        _ = run.manifest


def test_a_score_that_is_no_number_is_written_as_none(run):
    run.finish({**FACTS, "test_accuracy": math.nan})
    assert run.manifest["test_accuracy"] is None
