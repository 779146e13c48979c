"""`spectrope claims pilots` trains in two stages, writes rows apart, and prints what the rules choose."""

from contextlib import nullcontext

import pytest
from tests.cli.typed import refused
from tests.study.made import row

from spectrope.cli import main
from spectrope.lab import JobCost
from spectrope.study.commands import _pilots as action
from spectrope.study.rows import StudyRows


@pytest.fixture
def trained(monkeypatch):
    """Numbers of runs by stage, each of which gets a loss in place of training."""
    stages = []

    def carry_out(jobs, rows, root, engine, watch):
        stages.append(len(jobs))
        for job in jobs:
            training = job.experiment.training
            rows.add(row(job.experiment, test_loss=training.learning_rate / training.epochs))

    monkeypatch.setattr(action, "carry_out", carry_out)
    costing = lambda device, threads, *, rough: nullcontext(lambda job: JobCost(1.0, 0.0))  # noqa: E731
    monkeypatch.setattr(action, "costing", costing)
    return stages


@pytest.mark.usefixtures("here")
def test_rates_come_first_then_epochs_then_the_choice(tmp_path, capsys, trained):
    assert main(["claims", "pilots"]) == 0
    assert trained == [48, 12]
    told = capsys.readouterr().out
    assert "Task 1: rate 0.0003, the lowest of those tried, 8 epochs." in told
    assert "Task 2: rate 0.0003, the lowest of those tried, 12 epochs." in told
    assert len(StudyRows.load(tmp_path / "results" / "mid-pilots.jsonl")) == 60
    assert main(["claims", "pilots"]) == 0
    assert trained == [48, 12]


@pytest.mark.usefixtures("here")
def test_a_dry_run_trains_and_writes_nothing(tmp_path, capsys, trained):
    assert main(["claims", "pilots", "--dry-run", "--workers", "1"]) == 0
    told = capsys.readouterr().out
    assert "48 pilot runs to do: about 48 s, 1 at a time." in told
    assert "Task 1: undecided until all runs are finished." in told
    assert not trained
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("here")
def test_another_scale_is_refused(capsys):
    assert "scale 'mini' has no pilots in the plan" in refused(capsys, "claims", "pilots", "--scale", "mini")
