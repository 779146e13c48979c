"""Expected cost, and the time that is left."""

import pytest
import torch
from tests.lab.engines.test_local import tiny
from torch.utils.flop_counter import FlopCounterMode

from spectrope.core.progress import Progress
from spectrope.lab.engines.cost import Calibration, Estimation, JobCost
from spectrope.lab.engines.pace import Pace, makespan
from spectrope.lab.job import Job
from spectrope.lab.measures import MEASURES
from spectrope.lab.runs import build_model
from spectrope.lab.training import laboratory
from spectrope.lab.training.laboratory import DecoderLaboratory, shortened
from spectrope.lab.training.scales import experiment
from spectrope.tasks import Batch

CPU = torch.device("cpu")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_before_anything_is_done_the_expected_speed_counts():
    assert Pace([30.0, 10.0, 20.0], [5.0, 5.0, 0.0], workers=2).remaining == 35.0
    assert Pace([15.0, 25.0], [5.0, 5.0], workers=1).remaining == 50.0


def test_no_plan_is_done_before_its_longest_job_is():
    assert makespan([30.0, 10.0, 10.0], workers=2) == 30.0
    assert makespan([20.0, 20.0, 20.0], workers=2) == 30.0
    assert makespan([], workers=2) == 0.0
    assert Pace([40.0, 10.0], [0.0, 0.0], workers=2).remaining == 40.0


def test_then_the_observed_speed_counts():
    clock = Clock()
    pace = Pace([80.0, 80.0], [20.0, 20.0], workers=1, clock=clock)
    pace.watch(Progress("train", 0, 100, job=0))
    pace.watch(Progress("train", 50, 100, job=0))
    clock.now = 120.0  # Three times as long as expected.
    assert pace.share == pytest.approx(0.2)
    assert pace.remaining == pytest.approx(3 * 160)
    pace.watch(Progress("ablate", 1, 1, job=0))
    assert pace.share == pytest.approx(0.45)
    for job in (0, 1):
        pace.watch(Progress("done", 1, 1, job=job))
    assert (pace.share, pace.remaining) == (1.0, 0.0)


def test_what_an_earlier_sitting_did_shows_no_speed():
    clock = Clock()
    pace = Pace([100.0, 100.0, 100.0], [0.0, 50.0, 0.0], workers=1, clock=clock)
    pace.watch(Progress("train", 90, 100, job=0))  # It goes on from a checkpoint.
    assert pace.remaining == 260.0
    clock.now = 30.0
    pace.watch(Progress("done", 1, 1, job=0))
    pace.watch(Progress("ablate", 1, 2, job=1))  # Trained before.
    assert pace.share == pytest.approx((100 + 100 + 12.5) / 350)
    clock.now = 67.5
    assert pace.remaining == pytest.approx(137.5 * 3)


def test_a_job_that_was_done_before_shows_no_speed():
    clock = Clock()
    pace = Pace([100.0] * 4, [50.0] * 4, workers=1, clock=clock)
    clock.now = 1.0
    pace.watch(Progress("done", 1, 1, job=0))
    assert pace.remaining == 450.0


def test_an_event_from_the_past_takes_nothing_back():
    pace = Pace([10.0], [10.0], workers=1)
    pace.watch(Progress("ablate", 1, 2, job=0))
    pace.watch(Progress("train", 1, 2, job=0))
    assert pace.share == pytest.approx(0.625)


def test_an_empty_plan_is_done():
    assert Pace([], [], workers=1).share == 1.0


def test_runs_that_differ_in_their_seed_alone_are_timed_once(monkeypatch):
    asked = []
    for owner, name in ((laboratory, "time_steps"), (DecoderLaboratory, "time_measure")):
        inner = getattr(owner, name)
        monkeypatch.setattr(
            owner,
            name,
            lambda one, *rest, inner=inner, name=name: (asked.append(name), inner(one, *rest))[1],
        )
    seeds = [experiment("distance", "random", epochs=1, n_examples=400, seed=seed) for seed in (0, 1)]
    costs = [*map(Calibration(CPU), [Job(tiny()), *map(Job, seeds)])]
    assert asked == ["time_steps", "time_measure", "time_steps"]
    assert costs[1] == costs[2]
    assert all(each.training > 0 and each.measuring > 0 for each in costs)
    assert JobCost(1.0, 2.0).total == 3.0


def test_cost_grows_with_epochs_and_examples(monkeypatch):
    monkeypatch.setattr(laboratory, "time_steps", lambda one, *rest: (0.5, 2.0))
    monkeypatch.setattr(DecoderLaboratory, "time_measure", lambda one, *rest: 7.0)
    few, many = (experiment("distance", "nope", epochs=n, n_examples=n * 1000) for n in (1, 30))
    small, large = map(Calibration(CPU), [Job(few), Job(many)])
    assert shortened(few).n_train == few.training.batch_size == 128  # And 256 examples held out.
    steps, scored = 700 / 128, 2 * 1000 / 128 / 3  # Before and after the epoch.
    assert small.training == pytest.approx(0.5 * 1000 / 384 + 2.0 * (steps + scored))
    steps, scored = 30 * 21000 / 128, 31 * 4000 / 128 / 3
    assert large.training == pytest.approx(0.5 * 30000 / 384 + 2.0 * (steps + scored))
    assert small.measuring == large.measuring == 7.0


def test_measures_are_taken_on_as_many_examples_as_there_are():
    few, many = (experiment("distance", "nope", n_examples=n * 1000) for n in (1, 30))
    assert MEASURES["ablation"]().examples(many) == 2000
    assert MEASURES["ablation-all"]().examples(few) == 1000
    assert MEASURES["ablation-all"]().examples(many) == 2000


def test_an_estimate_runs_no_step_and_follows_the_work(monkeypatch):
    monkeypatch.setattr(laboratory, "time_steps", None)
    one, same, longer = (
        experiment("distance", name, scale="paper", epochs=epochs, seed=seed)
        for name, epochs, seed in (("rope", 1, 0), ("rope", 1, 1), ("rope", 10, 0))
    )
    first, second, third = map(Estimation(CPU), [Job(one), Job(same), Job(longer)])
    assert first == second
    assert first.measuring == 0
    scored = 2 * 2000 / 3
    ratio = (10 * one.n_train + 11 * scored) / (one.n_train + 2 * scored)
    assert third.training / first.training == pytest.approx(ratio, rel=0.02)


def test_operations_are_those_of_the_products():
    """Checked against a count of what a forward and backward pass of the model multiplies."""
    one = experiment("distance", "nope", epochs=1, n_examples=40)
    model = build_model(one, CPU)
    length = one.model.max_length
    batch = Batch(torch.ones(8, length).long(), torch.zeros(8).long(), torch.full((8,), length))
    with FlopCounterMode(display=False) as counter:
        model(batch).sum().backward()
    counted = counter.get_total_flops() / 8
    scored = 2 * 40 / 3  # Both splits, before and after the epoch.
    assert DecoderLaboratory().operations(one) == pytest.approx(counted * (one.n_train + scored), rel=0.15)
