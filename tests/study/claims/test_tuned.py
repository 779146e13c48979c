"""Claims 1 and 2 at learning rates that trials choose: on rows with known answers, and from end to end."""

from dataclasses import replace

import pytest
from tests.study.made import jitter, row
from tests.study.test_study import tiny  # noqa: F401

from spectrope.cli import main
from spectrope.core.errors import UnsupportedError
from spectrope.lab.engines.local import execute
from spectrope.lab.job import Job
from spectrope.lab.trials import FACTORS, grid
from spectrope.study.claim import chosen_claims
from spectrope.study.claims.distance_ordering import DistanceOrdering
from spectrope.study.claims.dropout import Dropout
from spectrope.study.claims.tuned import TUNED, DistanceOrderingTuned, tried_claims, tuned_claims, tuning_of
from spectrope.study.page import write_replication
from spectrope.study.rows import StudyRows
from spectrope.study.study import Study

RATE = 3e-3  # Of scale mini.


def tried(best, without=(), condition="controlled"):
    """Rows of all trials of claim 1; each encoding does best at its factor, or at 1."""
    made = []
    for name, one in DistanceOrdering().arms(condition, "mini", 0).items():
        for factor, trial in zip(FACTORS, grid(one), strict=True):
            if (name, factor) not in without:
                made.append(row(trial, test=80.0 if factor == best.get(name, 1.0) else 60.0))
    return StudyRows.of(made)


def test_arms_take_the_rates_that_their_trials_chose():
    rows = tried({"alibi": 3.0, "nope": 0.3})
    claim, own = DistanceOrderingTuned(rows), DistanceOrdering().arms("controlled", "mini", 4)
    arms = claim.arms("controlled", "mini", 4)
    rates = {name: one.training.learning_rate / RATE for name, one in arms.items()}
    assert rates == pytest.approx({**dict.fromkeys(own, 1.0), "alibi": 3.0, "nope": 0.3})
    assert arms["rope"] == own["rope"]  # The same run as claim 1's.
    assert arms["alibi"].tuning == "chosen"


def test_an_arm_waits_for_all_of_its_trials():
    rows = tried({}, without=[("alibi", 3.0)])
    claim = DistanceOrderingTuned(rows)
    assert "alibi" not in claim.arms("controlled", "mini", 0)
    assert tuning_of(DistanceOrdering().arms("controlled", "mini", 0)["alibi"], rows) is None
    jobs = claim.jobs("controlled", "mini", range(2))
    trials = 6 * len(FACTORS)
    assert [job.tables for job in jobs[:trials]] == [()] * trials
    assert len(jobs) == trials + 5 * 2


def test_the_verdict_is_of_the_runs_at_those_rates():
    rows = tried({"sinusoidal": 3.0, "nope": 30.0, "alibi": 0.3})
    claim = DistanceOrderingTuned(rows)
    for seed in range(6):
        for arm, one in claim.arms("controlled", "mini", seed).items():
            test = {"rope": 95.0, "sinusoidal": 97.0}.get(arm, 30.0)
            rows.add(row(one, test=test + jitter(seed), train=99.0 if arm != "random" else 60.0))
    verdict = claim.judge(rows)
    assert (verdict.claim, verdict.word) == ("distance-ordering-tuned", "contradicted")
    first = verdict.findings[0]
    told = "RoPE minus each other encoding, held-out accuracy"
    assert (first.part.quantity, first.word) == (told, "contradicted")
    rates = first.part.note.removeprefix("rates: ").split(", ")
    assert {"RoPE 0.003", "absolute 0.009"} < set(rates)
    assert {rate for rate in rates if "*" in rate} == {"NoPE 0.09*", "ALiBi 0.0009*"}
    assert DistanceOrdering().judge(rows).word == "not testable here"  # Not all have run.


def test_only_claims_1_and_2_have_rates_to_tune():
    assert [one.kind for one in tuned_claims(chosen_claims(()), StudyRows())] == [
        "distance-ordering-tuned",
        "counting-biases-tuned",
        "counting-table-tuned",
        "counting-text-tuned",
    ]
    assert all(one.number == one.inner.number for one in TUNED.values())
    assert all(one.conditions == ("controlled",) for one in TUNED.values())
    with pytest.raises(UnsupportedError, match="tuned for claims distance-ordering, counting-text, "):
        tuned_claims([Dropout()], StudyRows())


def test_the_page_tells_of_rates_once_they_have_been_tried(tmp_path):
    claims = chosen_claims(("distance-ordering", "4"))
    assert tried_claims(claims, StudyRows(), "mini") == claims
    assert tried_claims(claims, tried({}, condition="released"), "mini") == claims  # Not where it is asked.
    rows = tried({})
    shown = tried_claims(claims, rows, "mini")
    assert [one.kind for one in shown] == ["distance-ordering", "distance-ordering-tuned", "dropout"]
    page = write_replication(Study(tuple(shown), ("controlled",), "mini", (0,)), rows, tmp_path / "page.md")
    assert (
        "each encoding at the learning rate that a trial chose](#distance-ordering-tuned)" in page.read_text()
    )


def test_trials_and_then_runs(tiny, tmp_path, capsys, monkeypatch):  # noqa: F811
    every = DistanceOrdering.arms
    two = ("rope", "nope")
    monkeypatch.setattr(DistanceOrdering, "arms", lambda *a: {name: every(*a)[name] for name in two})
    where = ["--rows", str(tmp_path / "rows"), "--runs", str(tmp_path / "runs")]
    words = ["claims", "run", "1", "--tune", "--scale", tiny, "--seeds", "0", "--conditions", "controlled"]
    words += [*where, "--device", "cpu", "--workers", "1"]
    assert main([*words, "--dry-run"]) == 0
    assert "at most as many as without --tune" in capsys.readouterr().out
    assert main(words) == 0
    first, second = capsys.readouterr().out.split("The results so far")
    assert "10 runs to do" in first
    assert "2 runs to do" in second
    rows = StudyRows.load(tmp_path / "rows" / "tiny.jsonl")
    assert len(rows) == 12
    assert len(DistanceOrderingTuned(rows).see(rows, "controlled", tiny).rows) == 2
    assert main([*words, "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "0 runs to do" in said
    assert "at most as many as without --tune" not in said
    elsewhere = ["--rows", str(tmp_path / "elsewhere"), *where[2:], "--seeds", "0", "--scale", tiny]
    for _ in range(2):  # Trials first, as they say which runs count.
        assert main(["claims", "harvest", "1", *elsewhere]) == 0
    assert "12 in all" in capsys.readouterr().out
    assert main(["claims", "run", "4", "--tune"]) == 2


def test_a_trial_that_fails_keeps_no_other_encoding_from_its_runs(tiny, tmp_path, capsys, monkeypatch):  # noqa: F811
    every = DistanceOrdering.arms
    two = ("rope", "nope")
    monkeypatch.setattr(DistanceOrdering, "arms", lambda *a: {name: every(*a)[name] for name in two})
    trial = Job(grid(DistanceOrdering().arms("controlled", tiny, 0)["rope"])[0], ())
    (damaged,) = execute([trial], tmp_path / "runs", device="cpu")
    (damaged.path / "config.json").write_text("{")
    words = ["claims", "run", "1", "--tune", "--scale", tiny, "--seeds", "0", "--conditions", "controlled"]
    words += ["--rows", str(tmp_path), "--runs", str(tmp_path / "runs"), "--device", "cpu", "--workers", "1"]
    assert main(words) == 2
    told = capsys.readouterr()
    assert damaged.id in told.err.splitlines()[-1]
    first, second = told.out.split("The results so far")
    assert "10 runs to do" in first
    assert "1 runs to do" in second
    assert "Verdicts" in second
    rows = StudyRows.load(tmp_path / "tiny.jsonl")
    assert [row.experiment.encoding_name for row in rows if row.experiment.tuning != "trial"] == ["nope"]


@pytest.mark.parametrize(
    ("fact", "value", "told"),
    [
        ("precision", "bfloat16", "trials of rope, computed in bfloat16 and float32"),
        ("test_accuracy", None, "without accuracy"),
    ],
)
def test_trials_that_cannot_be_compared_are_named_and_choose_nothing(fact, value, told):
    rows = tried({})
    first = grid(DistanceOrdering().arms("controlled", "mini", 0)["rope"])[0]
    row_of_first = rows.get(first)
    rows.add(replace(row_of_first, facts=row_of_first.facts | {fact: value}))
    claim = DistanceOrderingTuned(rows)
    assert "rope" not in claim.arms("controlled", "mini", 12)
    assert told in claim.judge(rows).left_out[0]
