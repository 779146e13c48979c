"""Cards of tasks, as printed by `spectrope tasks`."""

from typing import Any

from spectrope.cli.cards import fields_as_text, show_card
from spectrope.console import try_task
from spectrope.core import to_dict
from spectrope.encodings import documented
from spectrope.lab import Experiment, experiment
from spectrope.tasks import TASKS, Batch


def shown_task(name: str, scale: str) -> dict[str, Any]:
    """Print the card of a task at a scale, and return what it says.

    Args:
        name: A registered task, or a class in a file (`file.py:Class`), which is executed.
        scale: A key of `spectrope.lab.SCALES`.

    Raises:
        UnknownNameError: If there is no such task or scale.
        ConfigError: If the file cannot be executed, or the task or a size breaks a rule.
    """
    one = experiment(name, "nope", scale=scale)
    try_task(one.task)
    record = _record(one)
    counted, training = record["labels"], record["training"]
    lines = {
        "what it asks": record["summary"].rstrip("."),
        "example": f"{' '.join(map(str, record['example']['tokens']))}, label {record['example']['label']}",
        f"fields at {scale}": fields_as_text(record["fields"]),
        f"size at {scale}": f"{counted} labels, sequences of at most {record['longest']} tokens",
        f"training at {scale}": f"{training['examples']:,} examples and {training['held_out']:,} held out; "
        f"epochs: {training['epochs']}; learning rate: {training['learning_rate']:g}",
        "best possible accuracy": f"{_percent(record['bayes_accuracy'])}; the commonest label always given, "
        f"{_percent(record['chance_accuracy'])}",
        "source": record["reference"],
    }
    show_card(record["name"], "task", lines)
    return record


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _record(one: Experiment) -> dict[str, Any]:
    task = one.task.build()
    fields = to_dict(one.task)
    kind = fields.pop("kind")
    said = documented(TASKS[kind].__doc__)
    held_out = task.sample(one.n_test, one.seed, start=one.n_train)
    return {
        "name": kind,
        "summary": said["summary"],
        "reference": said["reference"],
        "scale": one.scale,
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
        "chance_accuracy": held_out.labels.bincount().max().item() / len(held_out),
        "example": _example(task.sample(1, one.seed)),
    }


def _example(first: Batch) -> dict[str, Any]:
    return {"tokens": first.inputs[0, : first.lengths[0]].tolist(), "label": first.labels.item()}
