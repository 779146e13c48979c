"""`spectrope tasks`: the list of tasks, and their cards."""

import json
import re

import pytest
from tests.cli.typed import refused

from spectrope.cli import main
from spectrope.cli.help import pages
from spectrope.lab import CONDITIONS, SCALES, experiment
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
    assert (card["longest"], card["labels"]) == (task.max_length, task.n_classes)
    assert card["bayes_accuracy"] == task.bayes_accuracy()
    held_out = task.split(one.n_train, one.n_test, one.seed)[1].labels.tolist()
    assert card["chance_accuracy"] == max(map(held_out.count, range(task.n_classes))) / len(held_out)


def test_a_card_is_of_a_scale_and_a_condition(capsys):
    typed = ("tasks", "Distance", "counting", "--scale", "paper", "--condition", "released")
    assert main(typed) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "fields: vocabulary=574, triggers=fixed, fillers=any" in out
    assert "training: 35,000 examples and 15,000 held out; epochs: 150" in out
    assert re.search(r"best possible accuracy: 9\d\.\d %", out)
    assert out.count("(task, scale paper, condition released)") == 2


def test_help_names_every_scale_and_condition():
    text = " ".join(option.text for option in pages()["tasks"].options)
    assert all(name in text for name in (*SCALES, *CONDITIONS))


def test_mistakes_are_one_line(capsys):
    assert "did you mean distance" in refused(capsys, "tasks", "distanse")
    assert "unknown scale 'midi'; did you mean mid" in refused(capsys, "tasks", "distance", "--scale", "midi")
    assert "rope is an encoding; `spectrope encodings rope` prints" in refused(capsys, "tasks", "rope")
    assert "--scale goes with the name of a task." in refused(capsys, "tasks", "--scale", "mid")
