"""Measures from a file of the user's own: in jobs, in worker processes, and after an edit."""

import pytest
import torch
from tests.lab.measures.test_measures import tiny
from tests.own_files import run_no_file_yet

from spectrope.core import foreign
from spectrope.core.errors import ConfigError
from spectrope.lab.engines.local import execute
from spectrope.lab.job import Job, complete
from spectrope.lab.measures import MEASURES
from spectrope.lab.stamps import DIGEST
from spectrope.lab.training.scales import experiment

CPU = torch.device("cpu")
FILE = """
import polars as pl
from spectrope.lab.measures import Measure, TableMeasure

class Seen(TableMeasure, name="seen"):
    def table(self, run, device, watch):
        return pl.DataFrame({"seed": [run.config["seed"]], "factor": [1]})

class Bare(Measure, name="bare"):
    pass
"""


@pytest.fixture(autouse=True)
def file(tmp_path, monkeypatch):
    run_no_file_yet(monkeypatch)
    path = tmp_path / "measures.py"
    path.write_text(FILE)
    return path


def test_a_job_takes_it_once(file, tmp_path):
    job = Job(tiny(), (f"{file}:Seen",))
    assert job.tables == ("seen",)
    run = complete(job, tmp_path / "runs", CPU)
    assert run.frame("seen").rows() == [(0, 1, foreign.digest_of(MEASURES["seen"]))]
    written = (run.path / "seen.parquet").stat().st_mtime_ns
    assert job.is_done(run)
    complete(job, tmp_path / "runs", CPU)
    assert (run.path / "seen.parquet").stat().st_mtime_ns == written


def test_tables_that_are_kept_anyway_are_not_replaced(file):
    for name in ("metrics", "tuning", "deposit"):
        file.write_text(FILE.replace('name="seen"', f'name="{name}"'))
        with pytest.raises(ConfigError, match=f"{name}.* a table that SpectroPE itself keeps"):
            Job(tiny(), (f"{file}:Seen",))


def test_what_is_no_table_is_refused(file, tmp_path):
    file.write_text(FILE.replace('pl.DataFrame({"seed": [run.config["seed"]], "factor": [1]})', "{}"))
    with pytest.raises(ConfigError, match=r"Seen\.table must be a polars data frame; got {}"):
        complete(Job(tiny(), (f"{file}:Seen",)), tmp_path / "runs", CPU)


def test_an_edited_file_measures_anew(file, tmp_path, monkeypatch):
    run = complete(Job(tiny(), (f"{file}:Seen",)), tmp_path / "runs", CPU)
    before = run.frame("seen")
    run_no_file_yet(monkeypatch)
    file.write_text(FILE.replace("[1]", "[2]"))
    job = Job(tiny(), (f"{file}:Seen",))
    assert not job.is_done(run)
    complete(job, tmp_path / "runs", CPU)
    assert job.is_done(run)
    assert run.frame("seen")["factor"].to_list() == [2]
    assert run.frame("seen")[DIGEST][0] != before[DIGEST][0]
    run.write_frame("seen", before.drop(DIGEST))
    assert not job.is_done(run)


def test_worker_processes_take_it(file, tmp_path):
    plan = [
        Job(experiment("distance", "nope", epochs=1, n_examples=60, seed=n), (f"{file}:Seen",))
        for n in (0, 1)
    ]
    runs = execute(plan, tmp_path / "runs", device="cpu", workers=2)
    assert [run.frame("seen")["seed"][0] for run in runs] == [0, 1]


def test_an_unfinished_class_is_refused(file):
    with pytest.raises(ConfigError, match=r"measures\.py:Bare defines no take, which every measure has"):
        Job(tiny(), (f"{file}:Bare",))
