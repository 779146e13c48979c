"""Plans on a Ray cluster: a real one of two workers on this machine, one of which is killed in mid-sweep."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from polars.testing import assert_frame_equal
from tests.sweeps.test_local import ignore, tiny

from spectrope.core.errors import ConfigError, UnsupportedError
from spectrope.store import find_runs
from spectrope.sweeps.job import Job, complete
from spectrope.sweeps.local import Local
from spectrope.sweeps.ray import Ray, asked_to_stop
from spectrope.sweeps.rows import Row
from spectrope.training.interrupt import Interrupted

SCRIPT = """
import json, os, pathlib, signal, sys
sys.path.insert(0, {tests!r})
import test_local as t
from spectrope.sweeps.job import Job
from spectrope.sweeps.ray import Ray

def workers():
    found = []
    for process in pathlib.Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                title = (process / "cmdline").read_bytes()
            except OSError:
                continue
            if title.startswith(b"ray::do_job"):
                found.append(int(process.name))
    return found

jobs = [Job.from_dict(one) for one in json.loads(sys.argv[2])]
done = []

def watch(number, event):
    if sys.argv[3] == "kill" and not done and event.stage == "train" and event.done > 3:
        done.extend(workers()[:1])
        os.kill(done[0], signal.SIGKILL)
    if sys.argv[3] == "stop" and number not in done and event.stage == "train" and event.done > 3:
        done.append(number)
        if len(done) == 2:
            os.kill(os.getpid(), signal.SIGINT)
    print(json.dumps({{"number": number, "stage": event.stage, "done": event.done}}), flush=True)

def keep(row):
    print(json.dumps({{"row": row.record()}}), flush=True)

try:
    Ray(workers=2, replicas=2)(jobs, pathlib.Path(sys.argv[1]), watch, keep)
except t.Interrupted as stop:
    print(json.dumps({{"stop": str(stop)}}))
print(json.dumps({{"killed": len(done)}}))
"""


def on_ray(jobs, root: Path, action: str) -> list[dict]:
    script = SCRIPT.format(tests=str(Path(__file__).parent))
    plan = json.dumps([job.to_dict() for job in jobs])
    words = [sys.executable, "-c", script, str(root), plan, action]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    ended = subprocess.run(words, capture_output=True, text=True, timeout=300, env=clean, check=False)
    assert ended.returncode == 0, ended.stderr[-2000:]
    return [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")]


def begun(job: Job, root: Path) -> None:
    """Leave a checkpoint of a job that was stopped after some steps."""
    steps = iter(range(6))
    with pytest.raises(Interrupted, match="stopped at step 6"):
        complete(job, root, torch.device("cpu"), stop=lambda: next(steps, None) == 5)


def test_a_worker_killed_in_mid_sweep_costs_no_result(tmp_path):
    pytest.importorskip("ray")
    jobs = [Job(tiny(name, epochs=30)) for name in ("rope", "alibi", "nope")]
    jobs.append(Job(replace(jobs[2].experiment, seed=1)))  # Trains with the third as one model.
    begun(jobs[0], tmp_path / "ray")
    lines = on_ray(jobs, tmp_path / "ray", "kill")
    assert lines[-1] == {"killed": 1}
    rows = {row.experiment: row for line in lines if "row" in line for row in [Row.read(line["row"])]}
    steps = [line["done"] for line in lines if line.get("number") == 0 and line["stage"] == "train"]
    assert min(steps) >= 6  # From its checkpoint, whoever was killed.
    kept: list[Row] = []
    Local("cpu", replicas=2)(jobs, tmp_path / "local", ignore, kept.append)
    assert len(rows) == len(kept) == 4
    assert [run.manifest.get("replicas") for run in find_runs(tmp_path / "ray")].count(2) == 2
    for row in kept:
        other = rows[row.experiment]
        assert other.run == row.run
        assert other.facts["test_accuracy"] == row.facts["test_accuracy"]
        for name, table in row.tables.items():
            assert_frame_equal(other.tables[name], table, rel_tol=1e-5)


def test_one_signal_stops_the_sweep_and_keeps_it(tmp_path):
    pytest.importorskip("ray")
    jobs = [Job(tiny(name, epochs=2000)) for name in ("rope", "alibi", "nope")]
    lines = on_ray(jobs, tmp_path, "stop")
    assert {"stop": "stopped; every run is saved."} in lines
    runs = find_runs(tmp_path)
    assert len(runs) == 2
    assert all(run.has_tensors("checkpoint") and not run.finished for run in runs)


def test_without_ray_the_way_out_is_told(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UnsupportedError, match=r"engine 'ray' needs Ray; pip install 'spectrope\[ray\]'"):
        Ray()([Job(tiny())], tmp_path, ignore, lambda row: None)


@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        ({"workers": 0}, "workers must be at least 1"),
        ({"cpus": 0}, "cpus must be"),
        ({"gpus": -1.0}, "gpus must be"),
        ({"replicas": 0}, "replicas must be"),
    ],
)
def test_impossible_shares_are_refused(fields, rule):
    with pytest.raises(ConfigError, match=rf"Ray\.{rule}"):
        Ray(**fields)


def test_a_stop_is_asked_for_now_and_then_alone():
    asked = []

    def ask() -> bool:
        asked.append(1)
        return False

    stop = asked_to_stop(ask)
    assert [stop() for _ in range(1000)] == [False] * 1000
    assert len(asked) < 10
    assert asked_to_stop(lambda: True)()
