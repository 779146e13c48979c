"""A study with faults: each run that cannot be used is named and left out, and verdicts say so."""

import json

import pytest
from tests.study.made import jitter, row, rows_of

from spectrope.store.records import append_record
from spectrope.study.claims.dropout import Dropout
from spectrope.study.page import write_replication
from spectrope.study.rows import StudyRows, run_name
from spectrope.study.study import Study

CLAIM = Dropout()


def say(arm, seed):
    return {"gaps": (40.0 + jitter(seed), 1.0, 1.0)}


def stored(path, *, seeds=6, without=()):
    """The rows of a study as a file."""
    rows = StudyRows(path)
    for one in rows_of(
        CLAIM, lambda arm, seed: None if (arm, seed) in without else say(arm, seed), seeds=seeds
    ):
        rows.add(one)
    return CLAIM.arms("controlled", "mini", 9)["rope/0.1"]


def cut_off(line):
    return line[: len(line) // 2]


def changed(line):
    return line.replace('"test_accuracy":0.95', '"test_accuracy":0.25')


def older(line):
    record = json.loads(line) | {"results_version": 0, "run": "0123456789ab"}
    record.pop("check")
    return record


def spoil(path, victim, fault):
    """Put a fault into the line of one run."""
    lines = path.read_text().splitlines()
    (place,) = [n for n, line in enumerate(lines) if f'"run":"{run_name(victim)}"' in line]
    spoiled = fault(lines.pop(place))
    path.write_text("\n".join([*lines, *([spoiled] if isinstance(spoiled, str) else [])]) + "\n")
    if isinstance(spoiled, dict):
        append_record(path, spoiled)


@pytest.mark.parametrize(
    ("fault", "seeds", "told"),
    [
        (cut_off, 34, "no valid JSON, such as a line truncated by a crash"),  # One run in a hundred.
        (changed, 7, "does not match its checksum"),
        (older, 7, "has results_version 0, not 1"),
    ],
)
def test_a_spoiled_run_among_many_is_named_and_left_out(tmp_path, fault, seeds, told):
    path = tmp_path / "mini.jsonl"
    victim = stored(path, seeds=seeds)
    spoil(path, victim, fault)
    rows = StudyRows.load(path)
    assert len(rows) == 5 * seeds - 1
    verdict = CLAIM.judge(rows)
    assert verdict.n_seeds == seeds - 1
    assert verdict.reason.endswith("; 1 run left out")
    (line,) = verdict.left_out
    assert told in line
    study = Study((CLAIM,), ("controlled",), "mini", tuple(range(6)))
    page = write_replication(study, rows, tmp_path / "page.md")
    assert f"Left out under `controlled`: {line}" in page.read_text()


@pytest.mark.parametrize("fault", [cut_off, changed, older])
def test_a_spoiled_run_of_the_fewest_seeds_leaves_no_verdict(tmp_path, fault):
    path = tmp_path / "mini.jsonl"
    spoil(path, stored(path), fault)
    verdict = CLAIM.judge(StudyRows.load(path))
    assert verdict.headline.word == "not testable here"
    assert (verdict.n_seeds, verdict.headline.enough) == (5, False)


def test_a_run_done_again_is_no_longer_missed(tmp_path):
    path = tmp_path / "mini.jsonl"
    victim = stored(path)
    spoil(path, victim, cut_off)
    rows = StudyRows.load(path)
    rows.add(row(victim, **say("rope/0.1", 9)))
    for again in (rows, StudyRows.load(path)):
        verdict = CLAIM.judge(again)
        assert (verdict.n_seeds, verdict.left_out) == (6, ())


def test_a_spoiled_run_of_another_claim_is_none_of_this_one(tmp_path):
    path = tmp_path / "mini.jsonl"
    spoil(path, stored(path), cut_off)
    rows = StudyRows.load(path)
    assert CLAIM.judge(rows, "described").left_out == ()


def test_missing_runs_leave_no_verdict_and_are_counted_on_the_page(tmp_path):
    path = tmp_path / "mini.jsonl"
    stored(path, without=[("rope/0", 8), ("rope/0", 11)])
    rows = StudyRows.load(path)
    verdict = CLAIM.judge(rows)
    assert (verdict.headline.word, verdict.n_seeds) == ("not testable here", 4)
    study = Study((CLAIM,), ("controlled",), "mini", tuple(range(6)))
    page = write_replication(study, rows, tmp_path / "page.md").read_text()
    assert "(#dropout) | controlled | 90 | 62 | 0 |" in page
