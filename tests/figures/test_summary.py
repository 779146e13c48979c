"""The numbers of the table and the words of the headline."""

import math

import numpy as np
import polars as pl
import pytest
from scipy import stats
from tests.figures.synthetic import make_run, make_store

from spectrope.figures.summary import about, headline, rows_of
from spectrope.figures.tables import read_tables

SPACE = "\N{NO-BREAK SPACE}"


def with_scores(run, test, drops=None):
    """Give a finished run other results."""
    run.finish(run.manifest | {"test_accuracy": test, "train_accuracy": 1.0, "bayes_accuracy": 0.974})
    if drops is not None:
        rows = [{"layer": 0, "head": i, "intact": test, "drop": float(d)} for i, d in enumerate(drops)]
        drop = pl.col("drop")
        ends = {"ablated": test - drop / 100, "low": drop - 1, "high": drop + 1}
        run.write_frame("ablation", pl.DataFrame(rows).with_columns(**ends))
    return run


def test_one_seed_has_no_interval(tmp_path):
    run = with_scores(make_run(tmp_path, "rope"), 0.95, [1.0, 40.5, -2.0])
    (row,) = rows_of(read_tables([run]), "distance")
    assert (row.encoding, row.n_seeds, row.interval) == ("rope", 1, None)
    assert (row.train, row.test, row.ceiling) == pytest.approx((100.0, 95.0, 97.4))
    assert row.gap == pytest.approx(2.4)
    assert row.drop == 40.5
    assert [(drop.name, drop.second) for drop in row.drops] == [("0.1", 1.0)]


def test_several_seeds_have_students_interval(tmp_path):
    accuracies = [0.91, 0.95, 0.90]
    runs = [with_scores(make_run(tmp_path, "rope", seed=i), a, [i, 9.0]) for i, a in enumerate(accuracies)]
    (row,) = rows_of(read_tables(runs), "distance")
    values = 100 * np.array(accuracies)
    low, high = stats.t.interval(0.95, 2, loc=values.mean(), scale=stats.sem(values))
    assert row.interval is not None
    assert (row.interval.low, row.interval.high) == pytest.approx((low, high))
    assert row.test == pytest.approx(92.0)
    assert row.drop == 9.0
    assert [drop.seed for drop in row.drops] == [0, 1, 2]


def test_the_headline_says_what_was_found(tmp_path):
    runs = [
        with_scores(make_run(tmp_path, "nope"), 0.05, [0.1, 0.3]),
        with_scores(make_run(tmp_path, "rope"), 0.97, [63.25, 4.0]),
    ]
    findings = headline(read_tables(runs))
    assert [finding.subject for finding in findings] == ["distance", "seeds"]
    assert findings[0].sentences == [
        f"Held-out accuracy in percent (best possible: 97.4): rope{SPACE}97.0, nope{SPACE}5.0.",
        "The most important head is head 0 of layer 0 in rope, seed 0: silencing it costs 63.2 points, "
        "the next head of that run 4.0 points.",
        f"Epochs to reach 90{SPACE}% of the best possible accuracy: rope{SPACE}5.",
        "Not reached within the epochs trained: nope.",
        "All encodings share the learning rate 0.003. With a tuned rate for each encoding (compare --tune), "
        "their order may differ.",
    ]
    assert findings[1].sentences == [
        "With only 1 seed for each encoding and task, these results describe only these runs; "
        "a general statement needs at least 6 seeds."
    ]


def test_six_seeds_lift_the_reservation(tmp_path):
    few = make_store(tmp_path, ("nope",), ("distance",), range(5))
    many = make_store(tmp_path, ("rope",), ("distance",), range(6))
    (mixed,) = headline(read_tables(few + many))[-1].sentences
    assert mixed.startswith("With only 5 to 6 seeds for each encoding and task, these results")
    (enough,) = headline(read_tables(many))[-1].sentences
    assert enough.startswith("There are 6 seeds for each encoding and task. ±")


def test_runs_that_differ_in_more_than_the_seed_are_no_seeds_of_one(tmp_path):
    first = with_scores(make_run(tmp_path, "rope"), 0.9)
    training = first.config["training"] | {"epochs": 50, "learning_rate": 0.5}
    second = with_scores(make_run(tmp_path, "rope", seed=1, training=training, n_train=9), 0.1)
    tables = read_tables([first, second])
    assert [row.n_seeds for setting in tables.settings for row in rows_of(tables, setting)] == [1, 1]
    assert all("epochs" in setting and "n_train" in setting for setting in tables.settings)


def test_a_late_seed_leaves_the_others_their_epochs(tmp_path):
    runs = [with_scores(make_run(tmp_path, "rope", seed=seed), 0.9) for seed in range(3)]
    late = runs[2].frame("metrics").with_columns(pl.col("accuracy") * 0.5)
    runs[2].write_frame("metrics", late)
    told = headline(read_tables(runs))[0].sentences
    assert f"Epochs to reach 90{SPACE}% of the best possible accuracy: rope{SPACE}4.5 (2 of 3 runs)." in told
    assert not any(sentence.startswith("Not reached") for sentence in told)


def test_tuned_runs_are_not_advised_to_be_tuned(tmp_path):
    runs = [with_scores(make_run(tmp_path, name, tuning="chosen"), 0.9) for name in ("rope", "nope")]
    assert not any("compare --tune" in line for line in headline(read_tables(runs))[0].sentences)
    copied = make_run(tmp_path, "rope", tuning="none")
    runs[0].finish(runs[0].manifest | {"copied_from": copied.id, "seconds": 60.0})
    runs[1].finish(runs[1].manifest | {"seconds": 120.0})
    copied.finish(copied.manifest | {"seconds": 60.0})
    (time,) = about([*runs, copied])["Training time"]
    assert time == "3.0 minutes, all runs together, without the trials of learning rates"


def test_means_come_with_half_an_interval(tmp_path):
    runs = [with_scores(make_run(tmp_path, "rope", seed=i), a) for i, a in enumerate((0.90, 0.94))]
    half = stats.t.ppf(0.975, 1) * 2
    assert f"rope{SPACE}92.0{SPACE}±{SPACE}{half:.1f}." in headline(read_tables(runs))[0].sentences[0]


def test_ceilings_that_differ_are_given_as_a_range(tmp_path):
    runs = [with_scores(make_run(tmp_path, "rope"), 0.9), make_run(tmp_path, "nope")]
    assert "(best possible: 97.4 to 100.0)" in headline(read_tables(runs))[0].sentences[0]


def test_without_ablation_no_drop_is_mentioned(tmp_path):
    run = make_run(tmp_path, "rope")
    run.remove("ablation")
    tables = read_tables([run])
    assert not [one for one in headline(tables)[0].sentences if "ilencing" in one]
    assert rows_of(tables, "distance")[0].drop is None


def test_drops_that_are_not_finite_are_never_the_largest(tmp_path):
    run = with_scores(make_run(tmp_path, "rope"), 0.9, [math.nan, 2.0, math.inf])
    (row,) = rows_of(read_tables([run]), "distance")
    assert [(drop.name, drop.drop, drop.second) for drop in row.drops] == [("0.1", 2.0, None)]
    run = with_scores(make_run(tmp_path, "nope"), 0.9, [math.nan])
    (row,) = rows_of(read_tables([run]), "distance")
    assert row.drops == []


def test_a_single_head_has_no_next(tmp_path):
    run = with_scores(make_run(tmp_path, "rope"), 0.9, [3.0])
    sentence = headline(read_tables([run]))[0].sentences[1]
    assert (
        sentence
        == "The most important head is head 0 of layer 0 in rope, seed 0: silencing it costs 3.0 points."
    )


def test_a_model_that_misses_no_head_is_said_to(tmp_path):
    run = with_scores(make_run(tmp_path, "rope"), 0.9, [-3.0, 0.0])
    assert (
        headline(read_tables([run]))[0].sentences[1]
        == "Silencing any single head does not reduce the accuracy."
    )


def test_stability_is_told_over_seeds_and_over_evaluations(tmp_path):
    runs = [with_scores(make_run(tmp_path, "rope", seed=i), a) for i, a in enumerate((0.90, 0.94))]
    for run, scores in zip(runs, ([0.1, 0.8, 0.7, 0.9], [0.2, 0.5, 0.6, 0.94]), strict=True):
        rows = [
            {"step": 10 * epoch, "epoch": epoch, "split": split, "loss": 1.0, "accuracy": score}
            for epoch, score in enumerate(scores)
            for split in ("train", "test")
        ]
        run.write_frame("metrics", pl.DataFrame(rows))
    (row,) = rows_of(read_tables(runs), "distance")
    assert row.fall == pytest.approx((10 + 0) / 2)
    assert row.spread == pytest.approx(np.std([90, 94], ddof=1))
    assert row.overfitting == pytest.approx(100 - 92)
    (alone,) = rows_of(read_tables(runs[1:]), "distance")
    assert (alone.spread, alone.fall) == (None, 0.0)
