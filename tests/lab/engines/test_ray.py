"""Plans on a Ray cluster: a real one of two workers on this machine, one of which is killed in mid-sweep."""

import itertools
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from polars.testing import assert_frame_equal
from tests.lab.engines.test_local import ignore, tiny

from spectrope.core.errors import ConfigError, Interrupted, UnsupportedError
from spectrope.lab.engines.local import Local
from spectrope.lab.engines.ray import Ray, asked_to_stop
from spectrope.lab.job import Job, complete
from spectrope.lab.training.config import Experiment
from spectrope.store import find_runs
from spectrope.study.rows import StudyRow

SCRIPT = """
import json, os, pathlib, signal, sys, time
sys.path.insert(0, {tests!r})
import test_local as t
import ray
from spectrope.lab.engines import ray as overseer
from spectrope.lab.job import Job
from spectrope.lab.engines.ray import Ray
from spectrope.study.study import record_of

def parent(process):
    return int((process / "stat").read_text().rpartition(")")[2].split()[1])

def is_own(process):
    while process.name not in ("0", "1"):
        if int(process.name) == os.getpid():
            return True
        process = process.with_name(str(parent(process)))
    return False

def worker(job):
    for process in pathlib.Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                title = (process / "cmdline").read_bytes().strip(bytes(1)).decode()
                if title == f"ray::{{job.experiment.label}}" and is_own(process):
                    return int(process.name)
            except OSError:  # It has just ended.
                continue

def kill(job, progress, training):
    begun = progress.job in training and progress.done < progress.total // 2  # It is not about to end.
    victim = worker(job) if begun and progress.job in (0, 1) else None
    if victim:
        os.kill(victim, signal.SIGKILL)
        print(json.dumps({{"killed": victim}}), flush=True)
    return bool(victim)

def interrupt(job, progress, training):
    if len(training) == 2:
        os.kill(os.getpid(), signal.SIGINT)
    return len(training) == 2

def carry_out(plan, root, act):
    begun, training, acted = {{}}, set(), []
    jobs = [Job.from_dict(one) for one in json.loads(plan)]

    def watch(progress):
        number = progress.job
        print(json.dumps({{"number": number, "stage": progress.stage, "done": progress.done}}), flush=True)
        if progress.stage == "train" and progress.done > begun.setdefault(number, progress.done):
            training.add(number)
        if progress.stage == "done":
            training.discard(number)
        if not acted and act(jobs[number], progress, training):
            acted.append(number)

    def keep(record):
        print(json.dumps({{"row": record}}), flush=True)

    try:
        engine(jobs, pathlib.Path(root), watch, record_of, keep)
    except t.Interrupted as stop:
        print(json.dumps({{"stop": str(stop)}}))
    print(json.dumps({{"end": root}}), flush=True)

class SlowBoard(overseer.Board):
    def is_stopping(self):
        time.sleep(1)
        return super().is_stopping()

def ask(board):
    overseer._ask(board)
    return time.time()

def now():
    return time.time()

def keeps_its_processors():
    both = ray.remote(num_cpus=2)
    answered = both(ask).remote(ray.remote(num_cpus=0)(SlowBoard).remote())
    return ray.get(both(now).remote()) >= ray.get(answered)

overseer.SECONDS_BETWEEN_LOOKS = 0.02
engine = Ray(workers=2)
engine._connect(ray)  # One cluster for both plans; the second finds both workers ready.
carry_out(*sys.argv[1:3], interrupt)
print(json.dumps({{"waits in place": keeps_its_processors()}}), flush=True)
carry_out(*sys.argv[3:5], kill)
ray.shutdown()
"""


def on_ray(*plans: tuple[list[Job], Path]) -> list[list[dict[str, Any]]]:
    """What a driver tells, line by line, of a plan that it stops and of one that it kills a worker of."""
    script = SCRIPT.format(tests=str(Path(__file__).parent))
    words = [
        word for jobs, root in plans for word in (json.dumps([job.to_dict() for job in jobs]), str(root))
    ]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    clean["RAY_worker_niceness"] = "0"  # Else a busy machine lets workers starve.
    ended = subprocess.run(
        [sys.executable, "-c", script, *words],
        capture_output=True,
        text=True,
        timeout=300,
        env=clean,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    lines = [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")]
    end = lines.index({"end": str(plans[0][1])})
    return [lines[:end], lines[end:]]


def begun(job: Job, root: Path) -> None:
    """Leave a checkpoint of a job that was stopped after some steps."""
    asked = iter(range(7))  # Once before the first step.
    with pytest.raises(Interrupted, match="stopped at step 6"):
        complete(job, root, torch.device("cpu"), stop=lambda: next(asked, None) == 6)


def long(name: str) -> Experiment:
    """Some five hundred steps, so that it still trains when a worker is killed."""
    one = tiny(name, epochs=24)
    return replace(one, training=replace(one.training, batch_size=4, eval_examples=8))


def test_one_signal_stops_a_sweep_and_a_worker_killed_in_mid_sweep_costs_no_result(tmp_path):
    pytest.importorskip("ray")
    endless = [Job(tiny(name, epochs=5000)) for name in ("rope", "alibi", "nope")]
    jobs = [Job(long("rope")), Job(long("alibi")), Job(tiny("nope"))]
    jobs.append(Job(replace(jobs[2].experiment, seed=1)))
    begun(jobs[0], tmp_path / "ray")
    stopped, killed = on_ray((endless, tmp_path / "stopped"), (jobs, tmp_path / "ray"))
    assert killed.pop(1) == {"waits in place": True}
    assert_no_result_is_lost(jobs, tmp_path, killed)
    assert {"stop": "stopped; every run is saved."} in stopped
    runs = find_runs(tmp_path / "stopped")
    assert len(runs) == 2
    assert all(run.has_tensors("checkpoint") and not run.finished for run in runs)


def assert_no_result_is_lost(jobs: list[Job], root: Path, lines: list[dict[str, Any]]) -> None:
    """A worker was killed in mid-run, its job begun again, and rows are those of the local engine."""
    (victim,) = (at for at, line in enumerate(lines) if "killed" in line)
    steps = {n: [(at, line["done"]) for at, line in enumerate(lines) if trains(line, n)] for n in range(4)}
    assert min(done for _, done in steps[0]) == 6  # From its checkpoint, whoever was killed.
    again = [n for n, told in steps.items() if any(b[1] <= a[1] for a, b in itertools.pairwise(told))]
    assert again in ([0], [1])  # Of the two that were at work.
    fell = next(b[0] for a, b in itertools.pairwise(steps[again[0]]) if b[1] <= a[1])
    assert fell > victim
    rows = {row.experiment: row for line in lines if "row" in line for row in [StudyRow.read(line["row"])]}
    kept: list[StudyRow] = []
    Local("cpu")(jobs, root / "local", ignore, StudyRow.of, kept.append)
    assert len(rows) == len(kept) == 4
    for row in kept:
        other = rows[row.experiment]
        assert other.run == row.run
        assert other.facts["test_accuracy"] == row.facts["test_accuracy"]
        for name, table in row.tables.items():
            assert_frame_equal(other.tables[name], table, rel_tol=1e-5)


def trains(line: dict[str, Any], number: int) -> bool:
    return line.get("number") == number and line["stage"] == "train"


def test_without_ray_the_way_out_is_told(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UnsupportedError, match=r"engine 'ray' needs Ray; pip install 'spectrope\[ray\]'"):
        Ray()([Job(tiny())], tmp_path, ignore, StudyRow.of, lambda row: None)


@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        ({"workers": 0}, "workers must be at least 1"),
        ({"cpus": 0}, "cpus must be"),
        ({"gpus": -1.0}, "gpus must be"),
        ({"start_seconds": 0.0}, "start_seconds must be above 0"),
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


def test_the_process_of_the_board_loads_no_torch():
    code = "import sys, spectrope.lab.engines.board; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
