"""Run folders of version 0.1.0, kept in `data/`: read as before, under the same id, and gone on with."""

import shutil
from pathlib import Path

import pytest
import torch

from spectrope.core.config import to_dict
from spectrope.grokking.config import GrokExperiment
from spectrope.lab.ablation.interventions import HeadAblation
from spectrope.lab.ablation.sweep import sweep
from spectrope.lab.experiments import read_experiment
from spectrope.lab.job import Job, complete, train
from spectrope.lab.runs import find_run, load_model
from spectrope.lab.training.config import Experiment
from spectrope.lab.training.state import WEIGHTS
from spectrope.store import find_runs, load_run

DATA = Path(__file__).parent / "data"
CPU = torch.device("cpu")
DECODER, RESIDUES = "baa6341a276c", "fab6e82ed13b"


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """A copy of the finished folders."""
    return Path(shutil.copytree(DATA / "runs-0.1", tmp_path / "runs"))


@pytest.mark.parametrize(("name", "kind"), [(DECODER, Experiment), (RESIDUES, GrokExperiment)])
def test_a_folder_is_found_under_its_old_id(runs, name, kind):
    experiment = read_experiment(load_run(runs / name).config)
    assert isinstance(experiment, kind)
    run = find_run(experiment, runs)
    assert run is not None
    assert run.id == name


def test_a_finished_folder_holds_all_that_its_job_makes(runs):
    before = sorted(path.read_bytes() for path in runs.rglob("*") if path.is_file())
    for run in find_runs(runs):
        experiment = read_experiment(run.config)
        tables = ("ablation",) if isinstance(experiment, Experiment) else ()
        again = complete(Job(experiment, tables), runs, CPU)
        assert again.manifest == run.manifest
    assert sorted(path.read_bytes() for path in runs.rglob("*") if path.is_file()) == before


def test_rows_of_an_old_table_name_heads_as_ablations_do(runs):
    run = load_run(runs / DECODER)
    experiment = read_experiment(run.config)
    assert isinstance(experiment, Experiment)
    table = run.frame("ablation")
    assert sorted(set(table["layer"])) == sorted(set(table["head"])) == [0, 1]
    _, held_out = experiment.task.build().split(experiment.n_train, experiment.n_test, experiment.seed)
    model = load_model(run, CPU)
    drops = {(drop.layer, drop.head): drop.drop for drop in sweep(model, held_out).drops()}
    for row in table.iter_rows(named=True):
        HeadAblation(row["layer"], row["head"]).check(model.config)
        assert row["drop"] == pytest.approx(drops[row["layer"], row["head"]], abs=1e-9)


def test_an_unfinished_folder_goes_on(tmp_path):
    shutil.copytree(DATA / "begun-0.1", tmp_path / "runs")
    (begun,) = find_runs(tmp_path / "runs")
    assert not begun.finished
    experiment = read_experiment(begun.config)
    resumed, whole = train(experiment, tmp_path / "runs", CPU), train(experiment, tmp_path / "whole", CPU)
    assert resumed.id == whole.id == DECODER
    first, second = (run.read_tensors(WEIGHTS)[0] for run in (resumed, whole))
    torch.testing.assert_close(first, second, rtol=1e-3, atol=1e-5)  # The first step is another machine's.


def test_configurations_are_written_as_before(runs):
    for run in find_runs(runs):
        fields = {key: value for key, value in run.config.items() if key != "laboratory"}
        assert to_dict(read_experiment(run.config)) == fields
