"""Seeds that train as one model leave the runs that they leave alone."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from polars.testing import assert_frame_equal
from tests.lab.engines.test_local import ignore, tiny

from spectrope.core.errors import ConfigError, Interrupted
from spectrope.grokking.config import GrokExperiment
from spectrope.lab.engines import together
from spectrope.lab.engines.local import Local, execute
from spectrope.lab.engines.together import complete_together, grouped
from spectrope.lab.job import Job, complete, described
from spectrope.lab.runs import find_run, load_model
from spectrope.lab.training.config import Experiment
from spectrope.lab.training.state import CHECKPOINT
from spectrope.store import Run

CPU = torch.device("cpu")


def seeds(one: Experiment, numbers: Sequence[int]) -> list[Job]:
    return [Job(replace(one, seed=seed)) for seed in numbers]


def without_dropout(one: Experiment) -> Experiment:
    return replace(one, model=replace(one.model, dropout=0.0))


def test_groups_hold_what_differs_in_its_seed_alone(tmp_path):
    rope, nope, modular = seeds(tiny("rope"), range(5)), seeds(tiny("nope"), range(2)), GrokExperiment()
    plan = [rope[0], nope[0], *rope[1:], Job(modular, ()), nope[1]]
    assert [list(group) for group in grouped(plan, tmp_path, 3)] == [[0, 2, 3], [1, 7], [4, 5], [6]]
    assert [list(group) for group in grouped(plan, tmp_path, 1)] == [[number] for number in range(8)]
    assert grouped(plan, tmp_path, 3)[1] == {1: nope[0], 7: nope[1]}


def test_groups_share_a_precision(tmp_path):
    jobs = [
        replace(job, precision=asked)
        for job, asked in zip(seeds(tiny(), range(3)), ("float32", "bfloat16", "float32"), strict=True)
    ]
    assert [list(group) for group in grouped(jobs, tmp_path, 3)] == [[0, 2], [1]]
    together = execute(jobs, tmp_path, device="cpu", replicas=3)
    assert [run.manifest["precision"] for run in together] == ["float32", "bfloat16", "float32"]


def test_what_was_begun_alone_goes_on_alone(tmp_path):
    jobs = seeds(tiny(), range(4))
    complete(jobs[1], tmp_path, CPU)
    with pytest.raises(Interrupted):
        complete(jobs[2], tmp_path, CPU, stop=lambda: True)
    assert [list(group) for group in grouped(jobs, tmp_path, 4)] == [[0, 3], [1], [2]]


def test_a_run_that_cannot_be_read_goes_alone(tmp_path):
    jobs = seeds(tiny(), range(3))
    run = complete(jobs[1], tmp_path, CPU)
    (run.path / "config.json").write_text("{")
    assert [list(group) for group in grouped(jobs, tmp_path, 3)] == [[0, 2], [1]]


PLAN = [
    replace(job, precision="float32")  # In bfloat16 sums differ with the size of the batch.
    for job in (*seeds(without_dropout(tiny()), range(3)), Job(tiny("alibi")))
]


@pytest.fixture(scope="module")
def apart(tmp_path_factory) -> list[Run]:
    return execute(PLAN, tmp_path_factory.mktemp("apart"), device="cpu")


@pytest.mark.parametrize("workers", [1, 2])
def test_together_and_apart_leave_the_same_runs(apart, tmp_path, workers):
    heard = set()
    together = execute(
        PLAN,
        tmp_path,
        device="cpu",
        workers=workers,
        replicas=3,
        watch=lambda number, event: heard.add((number, event.stage)),
    )
    assert heard == {(number, stage) for number in range(4) for stage in ("train", "ablate", "done")}
    assert [run.manifest.get("replicas") for run in together] == [3, 3, 3, None]
    for one, other in zip(apart, together, strict=True):
        assert one.id == other.id
        assert not [path.name for path in other.path.iterdir() if "replicas" in path.name]
        assert_frame_equal(one.frame("metrics"), other.frame("metrics"), abs_tol=1e-5)
        weights = [load_model(run, CPU).state_dict() for run in (one, other)]
        torch.testing.assert_close(*weights, rtol=1e-3, atol=1e-5)


def test_a_stopped_group_goes_on_as_one(tmp_path):
    jobs = seeds(tiny(epochs=3), range(2))
    whole = complete_together(jobs, tmp_path / "whole", CPU, [lambda event: None] * 2, lambda: False)
    asked = iter([False] * 6 + [True])
    with pytest.raises(Interrupted, match="stopped at step 6"):
        complete_together(jobs, tmp_path / "cut", CPU, [lambda event: None] * 2, lambda: next(asked))
    begun = find_run(jobs[0].experiment, tmp_path / "cut")
    assert begun is not None
    assert begun.has_tensors("replicas-0-1")
    assert not begun.has_tensors(CHECKPOINT)
    for one, other in zip(whole, execute(jobs, tmp_path / "cut", device="cpu", replicas=2), strict=True):
        assert_frame_equal(one.frame("metrics"), other.frame("metrics"))


def test_a_crash_while_a_group_is_scored_leaves_it_a_group(tmp_path, monkeypatch):
    jobs, scored = seeds(tiny(), range(2)), []

    def crashing(trainer, model):
        scored.append(trainer.experiment.seed)
        if scored == [0, 1]:
            raise KeyboardInterrupt
        return described(trainer, model)

    monkeypatch.setattr(together, "described", crashing)
    with pytest.raises(KeyboardInterrupt):
        execute(jobs, tmp_path, device="cpu", replicas=2)
    runs = execute(jobs, tmp_path, device="cpu", replicas=2)
    assert [run.manifest["replicas"] for run in runs] == [2, 2]


def test_no_group_is_begun_once_asked_to_stop(tmp_path):
    with pytest.raises(Interrupted, match="stopped between two runs"):
        complete_together(seeds(tiny(), range(2)), tmp_path, CPU, [], lambda: True)
    assert not list(tmp_path.iterdir())


def test_the_local_engine_keeps_a_row_for_each_seed(tmp_path):
    kept = []
    Local("cpu", replicas=2)(seeds(tiny(), range(3)), tmp_path, ignore, kept.append)
    assert sorted(row.experiment.seed for row in kept) == [0, 1, 2]
    with pytest.raises(ConfigError, match=r"Local\.replicas must be at least 1"):
        Local(replicas=0)
