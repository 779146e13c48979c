"""Tasks from a file of the user's own: their version is part of a run, and no file is run unasked."""

import pytest
import torch
from tests.cli.typed import refused
from tests.own_files import run_no_file_yet

from spectrope.cli import main
from spectrope.core.config import from_dict
from spectrope.core.errors import ConfigError
from spectrope.core.foreign import digest_of, loaded_files
from spectrope.lab.engines.local import execute
from spectrope.lab.experiments import read_experiment, written
from spectrope.lab.job import Job
from spectrope.lab.runs import experiment_of
from spectrope.lab.training.scales import experiment
from spectrope.store import find_runs
from spectrope.study.rows import run_name
from spectrope.tasks.base import TASKS

FILE = '''
from dataclasses import dataclass

import numpy as np
import torch

from spectrope.core.random import indexed_integers
from spectrope.encodings.base import EncodingConfig, LagBias
from spectrope.tasks.base import Batch, Size, Task, TaskConfig

class First(Task, name="first"):
    """Which word comes first?"""
    @dataclass(frozen=True, kw_only=True)
    class Config(TaskConfig):
        words: int = 5
    sizes = {"mini": Size(config=Config(words=4), n_examples=100, epochs=1)}
    n_classes = property(lambda self: self.config.words)
    vocabulary = property(lambda self: self.config.words + 1)
    max_length = property(lambda self: 6)
    def sample(self, n, seed, start=0):
        words = indexed_integers(seed, "first", np.arange(start, start + n), 6, self.config.words)
        inputs = torch.from_numpy(words) + 1
        return Batch(inputs, inputs[:, 0] - 1, torch.full((n,), 6))
    def solve(self, batch, seed):
        return batch.inputs[:, 0] - 1
    def bayes_accuracy(self, n=8000, seed=0):
        return 1.0

class Mine(LagBias, name="mine"):
    @dataclass(frozen=True, kw_only=True)
    class Config(EncodingConfig):
        n_heads: int = 8
    def lag_bias(self, lag):
        return -lag.abs()[..., None].double().expand(*lag.shape, self.config.n_heads)
'''


@pytest.fixture(autouse=True)
def file(here, tmp_path, monkeypatch):
    run_no_file_yet(monkeypatch)
    path = tmp_path / "first.py"
    path.write_text(FILE)
    return path


def test_its_version_is_part_of_the_run(file, monkeypatch):
    one = experiment(f"{file}:First", "rope")
    assert (one.task.words, one.n_train + one.n_test, one.model.n_labels) == (4, 100, 4)
    fields, name = written(one), run_name(one)
    assert fields["own_tasks"] == {"first": digest_of(TASKS["first"])}
    assert "own_encodings" not in fields
    assert read_experiment(fields) == one
    assert "own_tasks" not in written(experiment("distance", "rope"))
    run_no_file_yet(monkeypatch)
    with pytest.raises(
        ConfigError,
        match=r"task 'first' comes from a file, .* pass --own path.* call `TASKS\.resolve` with it or define",
    ):
        read_experiment(fields)
    file.write_text(FILE.replace("comes first", "is first"))
    assert run_name(experiment(f"{file}:First", "rope")) != name
    with pytest.raises(ConfigError, match="the file of task 'first' has changed"):
        read_experiment(fields)
    with pytest.raises(ConfigError, match="own_tasks must hold a version for each task; got 'first'"):
        read_experiment(fields | {"own_tasks": "first"})


def test_an_encoding_and_a_task_of_one_name_are_told_apart(file):
    file.write_text(FILE.replace('"mine"', '"first"'))
    plain = experiment(f"{file}:First", "rope")
    assert set(written(plain)) & {"own_tasks", "own_encodings"} == {"own_tasks"}
    name = run_name(plain)
    own = experiment("distance", f"{file}:Mine")
    assert set(written(own)) & {"own_tasks", "own_encodings"} == {"own_encodings"}
    assert run_name(plain) == name


def test_its_card_is_printed_once_it_has_been_tried(file, capsys, monkeypatch):
    assert main(("tasks", f"{file}:First")) == 0
    assert "what it asks: Which word comes first?" in " ".join(capsys.readouterr().out.split())
    run_no_file_yet(monkeypatch)
    file.write_text(FILE.replace("batch.inputs[:, 0] - 1", "batch.inputs[:, 1] - 1"))
    assert "First: solve is right in 0." in refused(capsys, "tasks", f"{file}:First")


def test_worker_processes_train_task_and_encoding_from_files(file, tmp_path):
    plan = [Job(experiment(f"{file}:First", f"{file}:Mine", seed=seed)) for seed in (0, 1)]
    for run in execute(plan, tmp_path / "runs", device="cpu", workers=2):
        assert set(run.config) > {"own_tasks", "own_encodings"}
        assert experiment_of(run).label.startswith("first/mine/seed ")
        assert run.manifest["bayes_accuracy"] == 1.0
        assert run.has_frame("ablation")


def test_commands_name_each_file_once(tmp_path, capsys, monkeypatch):
    assert main(("train", "--task", "first.py:First", "--encoding", "first.py:Mine")) == 0
    (run,) = find_runs(tmp_path / "runs")
    own = ("--own", "./first.py:First", "--own", "./first.py:Mine")
    for command in (("ablate", run.id), ("train", "--recipe", f"runs/{run.id}/config.json")):
        run_no_file_yet(monkeypatch)
        assert "comes from a file, which is only executed on request" in refused(capsys, *command)
        assert loaded_files() == ()
        assert main((*command, *own)) == 0
        capsys.readouterr()
    (tmp_path / "other.py").write_text(FILE.replace('"first"', '"other"').replace('"mine"', '"yours"'))
    told = refused(capsys, "ablate", run.id, "--own", "other.py:First")
    assert "--own other.py:First is task 'other'; the run has mine, first." in told
    run_no_file_yet(monkeypatch)
    assert main(("runs",)) == 0
    assert main(("claims", "harvest", "single-head", "--rows", "rows")) == 0
    assert capsys.readouterr().err == ""
    assert loaded_files() == ()


@pytest.mark.parametrize(
    ("right", "wrong", "told"),
    [
        (
            "inputs[:, 0] - 1, torch",
            "inputs[:, 0], torch",
            "First: labels must lie between 0 and n_classes - 1",
        ),
        ("return 1.0", "return 1 / 0", "task 'first' fails in a test: "),
        ("return 1.0", "return 1 / 0", "first.py, line 27: ZeroDivisionError: division by zero."),
        ('"mini": Size', '"maxi": Size', "unknown scale 'maxi'; did you mean mid or mini?"),
        ("Config(words=4)", "Config(word=4)", "first.py, line 16: TypeError: "),
    ],
)
def test_a_mistake_is_told_before_anything_is_trained(file, tmp_path, capsys, right, wrong, told):
    file.write_text(FILE.replace(right, wrong))
    for command in (("train", "--task"), ("compare", "--tasks")):
        assert told in refused(capsys, *command, "first.py:First")
    assert not (tmp_path / "runs").exists()


def test_a_configuration_reads_its_fields(file):
    name = TASKS.resolve(f"{file}:First")
    assert from_dict(TASKS.config(name), {"words": 3}).build().n_classes == 3
    assert torch.equal(TASKS.config(name)().build().sample(3, 0).lengths, torch.full((3,), 6))
