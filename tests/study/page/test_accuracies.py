"""The table of accuracies beside those of Table 1."""

import re
from functools import partial

from tests.study.made import jitter
from tests.study.made import row as made_row

from spectrope.study.arms import by_encoding
from spectrope.study.claim import chosen_claims
from spectrope.study.page.accuracies import COLUMNS, accuracies
from spectrope.study.rows import StudyRows
from spectrope.study.study import Study

STUDY = Study(tuple(chosen_claims(())), ("controlled", "released"), "mid", tuple(range(6)))
row = partial(made_row, commit="0123abc")


def cells(rows, task="Task 1"):
    (line,) = accuracies(STUDY, StudyRows.of(rows))[task]
    return dict(zip(COLUMNS, line, strict=True))


def run(task, encoding, seed=0, condition="controlled"):
    return by_encoding(task, condition, "mid", seed, (encoding,))[encoding]


def test_without_rows_there_is_no_table():
    assert accuracies(STUDY, StudyRows()) == {}


def test_a_line_tells_accuracy_spread_gap_and_speed():
    curve = (20.0, 60.0, 84.0, 80.0)
    line = cells(
        row(run("distance", "rope", s), test=80 + jitter(s), train=90 + jitter(s), curve=curve)
        for s in range(6)
    )
    assert line["encoding"] == "RoPE"
    assert line["seeds"] == "6"
    assert line["Table 1, %"] == "92.64"
    assert re.fullmatch(r"80\.0 \[79\.\d to 80\.\d\]", line["held out, %"])
    assert line["spread over seeds"] == "0.8"  # Standard deviation of the jitter.
    assert line["range over the last epochs (rise)"] == "4.0 (-4.0)"
    assert line["training minus held out"] == "10.0"
    assert line["speed on training examples, %"] == "61.0"
    assert line["time to learn, % of the steps"] == "0 of 6 runs"


def test_the_time_to_learn_is_that_of_runs_that_get_there():
    early, late = (20.0, 95.0, 99.0, 99.0), (20.0, 30.0, 40.0, 50.0)
    line = cells(
        (
            row(run("counting", "nope", s, "released"), test=99.0, curve=early if s < 4 else late)
            for s in range(6)
        ),
        "Task 2",
    )
    assert (line["condition"], line["Table 1, %"]) == ("released", "77.69")
    assert line["time to learn, % of the steps"] == "50, 4 of 6 runs"


def test_an_encoding_that_table_1_lacks_and_a_single_seed_have_dashes():
    line = cells([row(run("distance", "alibi"), test=50.0)])
    assert (line["Table 1, %"], line["held out, %"], line["spread over seeds"]) == ("–", "50.0", "–")


def test_rows_of_code_that_was_not_committed_do_not_count_at_a_planned_scale():
    assert accuracies(STUDY, StudyRows.of([row(run("distance", "rope"), commit="abc+changes")])) == {}


def test_no_interval_leaves_what_is_possible():
    line = cells(row(run("distance", "mla", s), test=95.0 + 5 * (s % 2)) for s in range(6))
    assert line["held out, %"].endswith("to 100.0]")
