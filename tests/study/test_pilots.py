"""Pilots choose rate and epochs by the plan's rules, apart from every row that counts."""

from dataclasses import replace

import pytest
from tests.study.made import row

from spectrope.core import ConfigError
from spectrope.lab.training.scales import experiment
from spectrope.study.pilots import Pilots, RateAndEpochs, piloted
from spectrope.study.plan import plan
from spectrope.study.rows import StudyRows

PILOTS = Pilots("mid")


def made(loss, jobs=None, rows=None):
    """Rows of all pilots that `rows` ask for, with a loss by task, encoding, rate, epochs and seed."""
    rows = StudyRows() if rows is None else rows
    for job in PILOTS.jobs(rows) if jobs is None else jobs:
        one, training = job.experiment, job.experiment.training
        found = loss(one.task.kind, one.encoding_name, training.learning_rate, training.epochs, one.seed)
        rows.add(row(one, test_loss=found))
    return rows


def test_the_first_runs_are_each_rate_of_each_encoding_and_seed_on_each_task():
    runs = [job.experiment for job in PILOTS.jobs(StudyRows())]
    assert len(runs) == len(set(runs)) == 2 * 4 * 2 * 3
    assert {one.training.learning_rate for one in runs} == {3e-4, 1e-3, 3e-3, 1e-2}
    assert {one.seed for one in runs} == {1000, 1001, 1002}
    assert {one.encoding_name for one in runs} == {"rope", "nope"}
    assert {(one.condition, one.scale, one.tuning) for one in runs} == {("controlled", "mid", "trial")}
    assert all(job.tables == () and job.precision == "float32" for job in PILOTS.jobs(StudyRows()))


def test_they_train_on_four_fifths_of_the_training_examples_and_are_judged_on_the_rest():
    full = experiment("distance", "rope", scale="mid", seed=1000)
    one = PILOTS.jobs(StudyRows())[0].experiment
    assert (one.n_train, one.n_test) == (11_200, 2_800)
    assert one.n_train + one.n_test == full.n_train
    assert one.training == replace(full.training, learning_rate=3e-4)


def test_the_rate_of_lowest_mean_loss_over_encodings_and_seeds_is_chosen_on_each_task():
    best = {"distance": 3e-3, "counting": 3e-4}

    def loss(
        task, encoding, rate, epochs, seed
    ):  # The other task's best rate wins for RoPE's first seed alone.
        return (
            0.1 if (encoding, seed) == ("rope", 1000) and rate != best[task] else 2.0 - (rate == best[task])
        )

    rows = made(loss)
    assert {task: PILOTS.best_rate(task, rows).rate for task in best} == best


def test_equal_rates_leave_the_smaller_and_divergence_loses():
    rows = made(lambda task, encoding, rate, epochs, seed: None if rate == 3e-4 and seed == 1001 else 1.0)
    assert PILOTS.best_rate("distance", rows) == RateAndEpochs(1e-3, 4)


def test_then_come_twice_the_epochs_at_that_rate():
    rows = made(lambda task, encoding, rate, epochs, seed: rate)
    left = [job for job in PILOTS.jobs(rows) if not rows.covers(job)]
    runs = [job.experiment for job in left]
    assert {(one.task.kind, one.training.epochs) for one in runs} == {("distance", 8), ("counting", 12)}
    assert {(one.encoding_name, one.training.learning_rate) for one in runs} == {
        ("rope", 3e-4),
        ("nope", 3e-4),
    }
    assert len(runs) == 12
    assert PILOTS.choice("distance", rows) is None


@pytest.mark.parametrize(("gained", "epochs"), [(0.101, 8), (0.099, 4)])
def test_more_epochs_are_taken_where_the_mean_loss_falls_by_a_tenth(gained, epochs):
    def loss(task, encoding, rate, epochs, seed):
        level = 1.0 + 0.1 * (seed - 1001) + (rate != 1e-3)
        return level * (1 - gained) if epochs == 8 else level

    rows = made(loss, rows=made(loss))
    assert PILOTS.choice("distance", rows) == RateAndEpochs(1e-3, epochs)
    assert PILOTS.choice("counting", rows) == RateAndEpochs(1e-3, 6)


def test_nothing_is_chosen_until_every_run_is_there():
    rows = made(lambda *of: 1.0, jobs=PILOTS.jobs(StudyRows())[:-1])
    assert PILOTS.best_rate("distance", rows) == RateAndEpochs(3e-4, 4)
    assert PILOTS.best_rate("counting", rows) is None
    assert [one.epochs for one in PILOTS.settings("distance", rows)] == [4, 4, 4, 4, 8]
    assert [one.epochs for one in PILOTS.settings("counting", rows)] == [6, 6, 6, 6]


def test_their_rows_are_in_a_file_apart(tmp_path):
    assert PILOTS.file(tmp_path) == tmp_path / "mid-pilots.jsonl"
    assert not set(PILOTS.seeds) & set(plan()["mid"]["seeds"])


def test_only_planned_scales_have_pilots():
    assert piloted() == ["mid"]
    with pytest.raises(ConfigError, match="scale 'mini' has no pilots in the plan; mid has"):
        Pilots("mini")
