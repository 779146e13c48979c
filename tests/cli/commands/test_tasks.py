"""`spectrope tasks`: the list of tasks, and their cards."""

import json
import re

import pytest
from tests.cli.typed import refused

from spectrope.cli import main
from spectrope.lab import experiment
from spectrope.tasks import TASKS

pytestmark = pytest.mark.usefixtures("here")


def test_the_list_names_every_task(capsys):
    assert main(("tasks",)) == 0
    listed = dict(re.findall(r"^  (\w+) +(\S.*)$", capsys.readouterr().out, re.MULTILINE))
    assert list(listed) == list(TASKS)
    assert all(len(summary.split()) > 7 for summary in listed.values())


@pytest.mark.parametrize("name", TASKS)
def test_a_card_says_what_the_task_asks(name, capsys):
    assert main(("tasks", name, "--json")) == 0
    (card,) = json.loads(capsys.readouterr().out)
    one = experiment(name, "nope")
    task = one.task.build()
    first = task.sample(1, seed=0)
    assert card["example"]["label"] == task.solve(first, seed=0).item() < card["labels"]
    assert card["example"]["tokens"] == first.trimmed().inputs[0].tolist()
    assert (card["longest"], card["training"]["examples"]) == (task.max_length, one.n_train)
    assert 0 < card["chance_accuracy"] < 0.6 < card["bayes_accuracy"] <= 1


def test_a_card_is_of_a_scale(capsys):
    assert main(("tasks", "Distance", "counting", "--scale", "paper")) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "fields at paper: vocabulary=574, triggers=fixed" in out
    assert "training at paper: 35,000 examples and 15,000 held out; epochs: 150" in out
    assert out.count("(task)") == 2


def test_mistakes_are_one_line(capsys):
    assert "did you mean distance" in refused(capsys, "tasks", "distanse")
    assert "unknown scale 'midi'; did you mean mid" in refused(capsys, "tasks", "distance", "--scale", "midi")
    assert "--scale goes with the name of a task." in refused(capsys, "tasks", "--scale", "mid")
