"""The plan of a comparison: one experiment per task, seed and encoding, all else equal."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from spectrope.core import ConfigError
from spectrope.lab.training.config import Experiment
from spectrope.lab.training.scales import AnyEncoding, AnyTask, experiment

COMPARED = ("nope", "sinusoidal", "learned", "random", "t5", "relative", "alibi", "rope")
COMPARED_TASKS = ("distance", "counting")


def comparison_plan(
    encodings: AnyEncoding | Sequence[AnyEncoding] = COMPARED,
    tasks: AnyTask | Sequence[AnyTask] = COMPARED_TASKS,
    seeds: int | Sequence[int] = 0,
    *,
    scale: str = "mini",
    condition: str = "controlled",
    epochs: int | None = None,
    n_examples: int | None = None,
    settings: Mapping[str, Any] | None = None,
) -> list[Experiment]:
    """The experiments that compare encodings on tasks, in the order task, seed, encoding; each comes once.

    Args:
        encodings: Names, classes, classes in files (`file.py:Class`), configurations, or one of them.
        tasks: Names, classes, classes in files, configurations, or one of them.
        seeds: One run per seed, task and encoding; a number is one seed.
        scale: Sizes and length of training; see `experiment`, also for what follows.
        condition: Which confounds to remove or keep: a name in `CONDITIONS`.
        epochs: Replaces the scale's.
        n_examples: Replaces the scale's.
        settings: Other fields of every experiment by name, as `Experiment.with_` takes them.

    Raises:
        ConfigError: If there is nothing to compare, or a value breaks a rule.
        UnknownNameError: If a name is not known.
    """
    chosen, on, numbers = map(_several, (encodings, tasks, seeds))
    for name, values in (("encodings", chosen), ("tasks", on), ("seeds", numbers)):
        if not values:
            raise ConfigError(f"a comparison's {name} must be at least one; got none.")
    plan = [
        experiment(
            task,
            encoding,
            scale=scale,
            condition=condition,
            seed=seed,
            epochs=epochs,
            n_examples=n_examples,
        ).with_(**settings or {})
        for task in on
        for seed in numbers
        for encoding in chosen
    ]
    return list(dict.fromkeys(plan))  # Two workers must not write one run.


def _several(given: Any) -> tuple[Any, ...]:
    """Several values, or one as the only one."""
    if isinstance(given, Iterable) and not isinstance(given, str | Mapping | type):
        return tuple(given)
    return (given,)
