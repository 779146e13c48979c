"""Cards of tasks, as printed by `spectrope tasks`."""

import math
from typing import Any

from spectrope.cli.cards import fields_as_text, show_card
from spectrope.cli.lists import without_stop
from spectrope.console import try_task
from spectrope.core import ConfigError, to_dict
from spectrope.encodings import ENCODINGS, documented
from spectrope.lab import Experiment, experiment
from spectrope.tasks import TASKS


def shown_task(name: str, scale: str, condition: str) -> dict[str, Any]:
    """Print the card of a task at a scale under a condition, and return what it says.

    The best possible accuracy is exact or an estimate from 8,000 examples; see the task's `bayes_accuracy`.

    Args:
        name: A registered task, or a class in a file (`file.py:Class`), which is executed.
        scale: A key of `spectrope.lab.SCALES`.
        condition: A key of `spectrope.lab.CONDITIONS`.

    Raises:
        UnknownNameError: If there is no such task, scale or condition.
        ConfigError: If it is an encoding, the file cannot be executed, or the task or a size breaks a rule.
    """
    if name in ENCODINGS and name not in TASKS:
        raise ConfigError(f"{name} is an encoding; `spectrope encodings {name}` prints its card.")
    one = experiment(name, "nope", scale=scale, condition=condition)
    try_task(one.task)
    record = _record(one)
    training, example = record["training"], record["example"]
    lines = {
        "what it asks": without_stop(record["summary"]),
        "example": f"{' '.join(map(str, example['tokens']))}, label {example['label']}",
        "fields": fields_as_text(record["fields"]),
        "size": f"labels 0 to {record['labels'] - 1}, sequences of at most {record['longest']} tokens",
        "training": f"{training['examples']:,} examples and {training['held_out']:,} held out; "
        f"epochs: {training['epochs']}; learning rate: {training['learning_rate']:g}",
        "best possible accuracy": f"{_percent(record['bayes_accuracy'])}; the most frequent label of the "
        f"held-out examples of seed 0, always given: {_percent(record['chance_accuracy'])}",
        "source": record["reference"],
    }
    show_card(record["name"], f"task, scale {scale}, condition {condition}", lines)
    return record


def _percent(share: float) -> str:
    """In percent, rounded down, so that only what is never wrong has 100."""
    return f"{math.floor(1000 * share) / 10:.1f} %"


def _record(one: Experiment) -> dict[str, Any]:
    task = one.task.build()
    fields = to_dict(one.task)
    kind = fields.pop("kind")
    said = documented(TASKS[kind].__doc__)
    first = task.sample(1, one.seed).trimmed()
    return {
        "name": kind,
        "summary": said["summary"],
        "reference": said["reference"],
        "scale": one.scale,
        "condition": one.condition,
        "fields": fields,
        "labels": task.n_classes,
        "longest": task.max_length,
        "training": {
            "examples": one.n_train,
            "held_out": one.n_test,
            "epochs": one.training.epochs,
            "learning_rate": one.training.learning_rate,
        },
        "bayes_accuracy": task.bayes_accuracy(),
        "chance_accuracy": task.sample(one.n_test, one.seed, start=one.n_train).commonest,
        "example": {"tokens": first.inputs[0].tolist(), "label": first.labels.item()},
    }
