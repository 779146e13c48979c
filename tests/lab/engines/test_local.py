"""Plans on this machine: the same results from any number of workers, one place that stops them all."""

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import polars as pl
import psutil
import pytest
import torch
import torch.nn.functional as F
from polars.testing import assert_frame_equal

from spectrope.core import device
from spectrope.core.errors import DeviceError, Interrupted, StoreError
from spectrope.core.progress import Progress
from spectrope.lab.ablation.methods import Exact, TrainedSubject, ablate
from spectrope.lab.ablation.protocols import PROTOCOLS
from spectrope.lab.engines.base import LostError
from spectrope.lab.engines.local import Local, execute, threads_each, throttled
from spectrope.lab.job import Job, complete, train
from spectrope.lab.runs import dtype_for, experiment_of, load_model, run_for
from spectrope.lab.training.config import Experiment
from spectrope.lab.training.scales import experiment
from spectrope.lab.training.state import CHECKPOINT
from spectrope.store import Run, find_runs
from spectrope.study.rows import StudyRow

CPU = torch.device("cpu")


def tiny(encoding: str = "rope", task: str = "distance", epochs: int = 1) -> Experiment:
    base = experiment(task, encoding, epochs=epochs, n_examples=100)
    model = replace(base.model, d_model=16, n_heads=2, n_layers=2, d_ff=16)
    return replace(base, model=model, training=replace(base.training, batch_size=32))


def ignore(progress: Progress) -> None:
    pass


def test_workers_and_one_process_give_the_same(tmp_path):
    plan = [tiny("rope"), tiny("alibi"), tiny("nope", "counting")]
    jobs = [Job(plan[0], precision="bfloat16"), Job(plan[1], precision="float32"), Job(plan[2])]
    heard, rows = set(), []

    def hear(progress: Progress) -> None:
        heard.add((progress.job, progress.stage))

    alone = execute(jobs, tmp_path / "one", device="cpu", workers=1, watch=ignore)
    Local("cpu", workers=2)(jobs, tmp_path / "two", hear, StudyRow.of, rows.append)
    assert heard == {(number, stage) for number in range(3) for stage in ("train", "ablate", "done")}
    assert sorted(row.run for row in rows) == sorted(run.id for run in alone)
    for first, one in zip(alone, plan, strict=True):
        second = run_for(one, tmp_path / "two")
        assert first.id == second.id
        assert experiment_of(second) == one
        assert second.finished
        assert second.manifest["precision"] == first.manifest["precision"]
        assert not second.has_tensors(CHECKPOINT)
        for name in ("metrics", "ablation"):
            assert_frame_equal(first.frame(name), second.frame(name))


def test_workers_share_the_threads_of_this_process(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 8)
    assert [threads_each(workers) for workers in (1, 3, 16)] == [8, 2, 1]


def test_what_is_finished_is_not_run_again(tmp_path):
    events: list[str] = []
    first = complete(Job(tiny()), tmp_path, CPU, lambda event: events.append(event.stage))
    written = {path.name: path.stat().st_mtime_ns for path in first.path.iterdir()}
    assert set(events) == {"train", "ablate", "done"}
    events.clear()
    again = complete(Job(tiny()), tmp_path, CPU, lambda event: events.append(event.stage))
    assert events == ["done"]
    assert {path.name: path.stat().st_mtime_ns for path in again.path.iterdir()} == written


@pytest.mark.sampled("kill")
@pytest.mark.parametrize("measure", ["ablation", "spectrum"])
def test_a_measurement_that_is_killed_between_its_tables_is_taken_again(tmp_path, monkeypatch, measure):
    whole = complete(Job(tiny(), (measure,)), tmp_path / "whole", CPU)
    train(tiny(), tmp_path, CPU)
    write = Run.write_frame

    def kill_at_second(run, name, table):
        if set(run.frames) - {"metrics"}:
            raise KeyboardInterrupt
        write(run, name, table)

    with monkeypatch.context() as patch:
        patch.setattr(Run, "write_frame", kill_at_second)
        with pytest.raises(KeyboardInterrupt):
            complete(Job(tiny(), (measure,)), tmp_path, CPU)
    run = complete(Job(tiny(), (measure,)), tmp_path, CPU)
    assert run.frames == whole.frames
    for name in whole.frames:
        assert_frame_equal(run.frame(name), whole.frame(name))


def test_a_run_trained_as_one_of_several_replicas_is_read_as_before(tmp_path):
    first = complete(Job(tiny()), tmp_path, CPU)
    row, weights = StudyRow.of(first).record(), load_model(first, CPU).state_dict()
    first.finish({**first.manifest, "replicas": 3})
    events: list[str] = []
    again = complete(Job(tiny()), tmp_path, CPU, lambda event: events.append(event.stage))
    assert events == ["done"]
    assert again.manifest["replicas"] == 3
    assert StudyRow.of(again).record() == row
    torch.testing.assert_close(load_model(again, CPU).state_dict(), weights, rtol=0, atol=0)


def test_the_manifest_says_what_was_measured(tmp_path):
    run = complete(Job(tiny()), tmp_path, CPU)
    manifest = run.manifest
    assert manifest["bayes_accuracy"] == 1.0
    assert manifest["n_parameters"] == sum(p.numel() for p in load_model(run, CPU).parameters())
    ablation = run.frame("ablation")
    assert ablation.select("layer", "head").rows() == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert ablation["intact"].to_list() == pytest.approx([manifest["test_accuracy"]] * 4)
    assert_frame_equal(
        ablation.select(drop=100 * (pl.col("intact") - pl.col("ablated"))), ablation.select("drop")
    )


def test_the_peak_memory_of_a_run_is_its_own(tmp_path):
    size = 512  # MiB
    large = torch.ones(size * 2**20, dtype=torch.uint8)
    with_large = psutil.Process().memory_info().rss / 2**20
    del large
    manifest = complete(Job(tiny(), ()), tmp_path, CPU).manifest
    assert manifest["memory_before_mib"] <= manifest["peak_memory_mib"] < with_large - size / 2


def test_a_job_says_the_precision_that_its_experiment_leaves_open(tmp_path):
    fixed = replace(tiny("nope"), training=replace(tiny("nope").training, precision="float32"))
    plan = [
        Job(tiny("rope"), precision="bfloat16"),
        Job(tiny("alibi"), precision="float32"),
        Job(fixed, precision="bfloat16"),
    ]
    runs = execute(plan, tmp_path, device="cpu", workers=1)
    assert [run.manifest["precision"] for run in runs] == ["bfloat16", "float32", "float32"]


@pytest.mark.parametrize("native", [False, True])
def test_a_run_is_measured_in_the_precision_of_its_training(tmp_path, monkeypatch, native):
    monkeypatch.setattr(device, "cpu_has_bfloat16", lambda: native)
    exact = complete(Job(tiny(), precision="float32"), tmp_path / "exact", CPU)
    low = complete(Job(tiny(), precision="bfloat16"), tmp_path / "low", CPU)
    assert dtype_for(exact, CPU) == torch.float32
    assert dtype_for(low, CPU) == (torch.bfloat16 if native else torch.float32)
    assert TrainedSubject.of(exact, CPU).dtype == torch.float32


def test_scores_are_those_of_the_trained_model_on_each_split(tmp_path):
    base = tiny(epochs=8)
    training = replace(base.training, eval_examples=20, learning_rate=2e-2, precision="float32")
    one = replace(base, training=training)
    run = train(one, tmp_path, CPU)
    model, parts = load_model(run, CPU), one.task.build().split(one.n_train, one.n_test, one.seed)
    last = run.frame("metrics").filter(pl.col("epoch") == 8)
    assert last["split"].to_list() == ["train", "test"]
    scored = {}
    for split, data in zip(("train", "test"), parts, strict=True):
        logits = model(data).detach()
        hits, losses = (
            logits.argmax(-1) == data.labels,
            F.cross_entropy(logits, data.labels, reduction="none"),
        )
        scored[split] = hits
        assert run.manifest[f"{split}_accuracy"] == pytest.approx(hits[:30].double().mean().item())
        (row,) = last.filter(pl.col("split") == split).rows(named=True)
        assert row["accuracy"] == pytest.approx(hits[:20].double().mean().item())
        assert row["loss"] == pytest.approx(losses[:20].mean().item(), rel=1e-4)
    assert run.manifest["test_loss"] == pytest.approx(losses.mean().item(), rel=1e-4)
    for n in (20, 30):
        assert scored["train"][:n].sum() != scored["test"][:n].sum()


def test_ablation_on_fewer_examples_stands_beside_the_usual_one_and_is_none(tmp_path):
    job = Job(tiny())
    run = train(job.experiment, tmp_path, CPU)
    assert ablate(run, CPU, Exact(examples=10))["ablation-10-examples"]["n"].to_list() == [10] * 4
    assert not job.is_done(run)
    assert not StudyRow.of(run).covers(job)
    usual = complete(job, tmp_path, CPU).frame("ablation")
    assert usual["n"].to_list() == [30] * 4
    ablate(run, CPU, Exact(examples=4))
    assert_frame_equal(run.frame("ablation"), usual)


def test_new_drops_take_correlations_with_the_old_ones_away(tmp_path):
    run = complete(Job(tiny()), tmp_path, CPU)
    stale = ("correlation", "correlation-16-examples-9-draws")
    for name in stale:
        run.write_frame(name, pl.DataFrame({"rho": [0.5]}))
    ablate(run, CPU, Exact(protocol=PROTOCOLS["R10"]))
    assert all(run.has_frame(name) for name in stale)
    ablate(run, CPU)
    assert not any(run.has_frame(name) for name in stale)


def test_a_stop_between_steps_keeps_the_run(tmp_path):
    with pytest.raises(Interrupted, match="stopped at step 1 of 3"):
        train(tiny(), tmp_path, CPU, stop=lambda: True)
    (run,) = find_runs(tmp_path)
    assert run.has_tensors(CHECKPOINT)
    with pytest.raises(StoreError, match=f"run {run.id} is unfinished"):
        load_model(run, CPU)
    assert train(tiny(), tmp_path, CPU).finished


def test_no_job_is_begun_once_asked_to_stop(tmp_path):
    with pytest.raises(Interrupted, match="stopped between two runs"):
        complete(Job(tiny()), tmp_path, CPU, stop=lambda: True)
    assert not list(tmp_path.iterdir())


def test_a_measure_ends_once_asked_to_stop_and_those_before_it_are_kept(tmp_path):
    train(tiny(), tmp_path, CPU)
    seen = []
    job = Job(tiny(), ("spectrum", "ablation"))
    with pytest.raises(Interrupted, match="stopped during a measure"):
        complete(job, tmp_path, CPU, seen.append, stop=lambda: any(one.stage == "ablate" for one in seen))
    (run,) = find_runs(tmp_path)
    assert run.has_frame("spectrum")
    assert not run.has_frame("ablation")
    assert [one.stage for one in seen].count("ablate") == 1
    assert complete(job, tmp_path, CPU).has_frame("ablation")


def test_a_measure_that_has_ended_is_kept_though_asked_to_stop(tmp_path):
    train(tiny(), tmp_path, CPU)
    seen = []

    def ended():
        return any(one.stage == "spectrum" and one.done == one.total for one in seen)

    with pytest.raises(Interrupted, match="stopped before a measure"):
        complete(Job(tiny(), ("spectrum", "ablation")), tmp_path, CPU, seen.append, stop=ended)
    (run,) = find_runs(tmp_path)
    assert run.has_frame("spectrum")
    assert not run.has_frame("ablation")


SWEEP = """
import sys, pathlib
sys.path.insert(0, {tests!r})
if __name__ == "__main__":
    import test_local as t
    plan = [t.tiny(name, epochs=400) for name in ("rope", "alibi", "nope", "t5", "learned", "shaw", "fire")]
    begun = set()
    def watch(progress):
        if progress.done > 3 and progress.job not in begun:
            begun.add(progress.job)
            print(progress.job, flush=True)
    try:
        t.execute(plan, pathlib.Path(sys.argv[1]), device="cpu", workers=2, watch=watch)
    except t.Interrupted as stop:
        print(stop)
        sys.exit(130)
"""


def begin_sweep(tmp_path: Path) -> subprocess.Popen[str]:
    script = tmp_path / "sweep.py"
    script.write_text(SWEEP.format(tests=str(Path(__file__).parent)))
    process = subprocess.Popen(
        [sys.executable, str(script), str(tmp_path / "runs")], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert sorted(process.stdout.readline().strip() for _ in range(2)) == ["0", "1"]
    return process


@pytest.mark.sampled("kill")
def test_one_signal_saves_every_worker(tmp_path):
    process = begin_sweep(tmp_path)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "stopped; every run is saved." in out
    runs = find_runs(tmp_path / "runs")
    assert len(runs) == 2
    assert all(run.has_tensors(CHECKPOINT) and not run.finished for run in runs)


@pytest.mark.sampled("kill")
def test_workers_end_with_a_killed_parent(tmp_path):
    process = begin_sweep(tmp_path)
    children = [
        int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    ]
    assert len(children) >= 2
    process.kill()
    process.communicate()
    deadline = time.monotonic() + 30
    while any(Path(f"/proc/{pid}").exists() for pid in children) and time.monotonic() < deadline:
        os.sched_yield()
    assert not any(Path(f"/proc/{pid}").exists() for pid in children)
    for run in find_runs(tmp_path / "runs"):
        assert not run.finished


@pytest.mark.parametrize("workers", [1, 2])
def test_a_failing_experiment_lets_the_others_finish(tmp_path, workers):
    plan = [tiny("rope"), tiny("alibi")]
    broken = run_for(plan[0], tmp_path)
    (broken.path / "config.json").write_bytes(b"no JSON")
    with pytest.raises(StoreError, match=r"config\.json is damaged"):
        execute(plan, tmp_path, device="cpu", workers=workers, watch=ignore)
    assert [run.finished for run in find_runs(tmp_path)].count(True) == 1


@pytest.mark.parametrize("workers", [1, 2])
def test_a_plan_ends_where_its_watcher_fails(tmp_path, workers):
    def refuse(progress):
        if progress.done > 0:
            raise StoreError("the rows cannot be written.")

    plan = [tiny(name, epochs=400) for name in ("rope", "alibi", "nope", "t5")]
    with pytest.raises(StoreError, match="the rows cannot be written"):
        execute(plan, tmp_path, device="cpu", workers=workers, watch=refuse)
    assert not any(run.finished for run in find_runs(tmp_path))


def test_a_second_error_hides_the_first_no_more(tmp_path):
    jobs = [Job(tiny("rope"), ()), Job(tiny("alibi"), ())]
    complete(jobs[1], tmp_path, CPU)
    kept = []

    def refuse(row):
        kept.append(row)
        raise StoreError(f"error {len(kept)}.")

    with pytest.raises(StoreError, match="error 1"):
        Local("cpu")(jobs, tmp_path, ignore, StudyRow.of, refuse)
    assert [row.experiment for row in kept] == [job.experiment for job in jobs]


@pytest.mark.sampled("kill")
def test_a_worker_that_is_killed_is_told_in_a_line(tmp_path):
    def kill(progress):
        for worker in multiprocessing.active_children()[: progress.done > 3]:
            with contextlib.suppress(ProcessLookupError):  # Already dead, from the event before.
                os.kill(worker.pid, signal.SIGKILL)

    plan = [tiny(name, epochs=4000) for name in ("rope", "alibi", "nope", "t5", "shaw", "fire")]
    with pytest.raises(
        LostError, match="a worker process died, for example because memory ran out; the same command"
    ):
        execute(plan, tmp_path, device="cpu", workers=2, watch=kill)
    assert not any(run.finished for run in find_runs(tmp_path))
    assert not multiprocessing.active_children()


def test_a_plan_runs_outside_the_main_thread(tmp_path):
    with ThreadPoolExecutor(1) as pool:
        (run,) = pool.submit(execute, [tiny()], tmp_path, device="cpu").result()
    assert run.finished


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has CUDA")
def test_cuda_is_asked_for_in_vain(tmp_path):
    with pytest.raises(DeviceError, match="device 'cuda' is not available here; use device='cpu', or 'auto'"):
        execute([tiny()], tmp_path, device="cuda", workers=1, watch=ignore)


def test_throttling_keeps_the_first_event_of_each_stage():
    heard: list[Progress] = []
    watch = throttled(heard.append)
    for stage in ("train", "ablate", "done"):
        for done in range(5):
            watch(Progress(stage, done, 5))
    assert [(at.stage, at.done) for at in heard] == [
        ("train", 0),
        ("ablate", 0),
        ("done", 0),
    ]
