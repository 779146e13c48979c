"""The rows of the search for a setting that groks: each is made by its command, and told on the page."""

from pathlib import Path

import pytest
from benchmarks.grok_shapes import ROWS, experiment, lasting, replace_row, row, search, told

from spectrope.lab.experiments import written
from spectrope.store import read_records

PAGE = Path(__file__).parent.parent / "docs" / "how-to" / "grokking.md"
STORED = read_records(ROWS)[0]
TINY = (
    "--sides 0 3 --resolution 16 --width 2 --n-train 8 --batch-size 4 --steps 3 --evaluate-every 1 "
    "--stop-after never"
)


@pytest.mark.parametrize("stored", STORED, ids=lambda one: str(one["config"]["task"]["n_train"]))
def test_rows_are_those_of_their_commands_and_on_the_page(stored):
    options = stored["command"].removeprefix("spectrope grok-shapes ")
    assert written(experiment(options)) == stored["config"]
    course = stored["progress"]
    assert stored["best_test_accuracy"] == max(course["test_accuracy"])
    assert stored["grokked_at"] == lasting(course["step"], course["test_accuracy"], 0.95)
    cells = (
        f"{stored['steps']:,}",
        f"{100 * stored['best_test_accuracy']:.1f}",
        f"{stored['cpu_seconds']:,}",
    )
    lines = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("|")]
    assert any(all(f"| {cell} |" in line for cell in cells) for line in lines)


def test_a_search_adds_a_row_for_each_setting_once(tmp_path, capsys):
    for _ in range(2):
        search((TINY,), tmp_path / "rows.jsonl", tmp_path / "runs", minutes=1)
    [made], complaints = read_records(tmp_path / "rows.jsonl")
    assert not complaints
    assert made["steps"] == 3
    assert capsys.readouterr().out.count("fitted") == 1


def test_a_row_that_was_cut_off_is_trained_anew_and_replaced(tmp_path):
    rows = tmp_path / "rows.jsonl"
    whole = TINY.replace("--steps 3", "--steps 2")
    replace_row(rows, row(TINY, tmp_path / "cut", minutes=0))
    search((whole, TINY), rows, tmp_path / "runs", minutes=1)
    stored = read_records(rows)[0]
    assert [one["steps"] for one in stored] == [3, 2]
    assert {one["ended"] for one in stored} == {"by its rule"}


def test_a_setting_names_one_seed_at_most():
    assert experiment(f"{TINY} --seeds 2").seed == 2
    with pytest.raises(ValueError, match="too many values"):
        experiment(f"{TINY} --seeds 0:2")


def test_a_run_that_its_minutes_end_says_so(tmp_path):
    made = row(TINY, tmp_path, minutes=0)
    assert made["ended"] == "after 0 minutes of processor time"
    assert made["steps"] < 3
    assert "steps" in told(made)


def test_accuracies_last_from_the_first_of_three():
    assert lasting([0, 1, 2, 3, 4], [1.0, 0.1, 0.96, 0.97, 0.98], 0.95) == 2
    assert lasting([0, 1, 2], [1.0, 0.1, 0.96], 0.95) is None
