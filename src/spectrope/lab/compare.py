"""The plan of a comparison: one experiment per task, seed and encoding, with everything else equal."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from spectrope.core import ConfigError
from spectrope.lab.ablation.thresholds import FEWEST_JUDGED
from spectrope.lab.training.config import Experiment
from spectrope.lab.training.scales import TRAIN_SHARE, AnyEncoding, AnyTask, experiment

COMPARED = ("nope", "sinusoidal", "learned", "random", "t5", "relative", "alibi", "rope")
FEWEST = next(n for n in itertools.count() if n - round(TRAIN_SHARE * n) >= FEWEST_JUDGED)  # Examples in all.
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
    """The distinct experiments that compare encodings on tasks, ordered by task, seed and encoding.

    Args:
        encodings: One or several encodings: names, classes, classes in files (`file.py:Class`) or
            configurations.
        tasks: One or several tasks: names, classes, classes in files, or configurations.
        seeds: Seeds, with one run per seed, task and encoding; a number is a single seed.
        scale: Size of models and data, and length of training; see `experiment`.
        condition: Which confounds to remove or keep: a name in `CONDITIONS`.
        epochs: Number of epochs (default: the scale's).
        n_examples: Number of examples (default: the scale's).
        settings: Other fields of every experiment by name, as for `Experiment.with_`.

    Raises:
        ConfigError: If there is nothing to compare, fewer than `FEWEST_JUDGED` examples are held out, or a
            value breaks a rule.
        UnknownNameError: If a name is unknown.
    """
    chosen, on, numbers = map(several, (encodings, tasks, seeds))
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
    for one in plan:
        if one.n_test < FEWEST_JUDGED:
            raise ConfigError(
                f"a comparison needs at least {FEWEST_JUDGED} held-out examples, two for each half of the "
                f"deposit rule; {one.n_train + one.n_test} examples leave {one.n_test}. "
                f"Take {FEWEST} or more."
            )
    return list(dict.fromkeys(plan))  # Two workers must not write one run.


def several(given: Any) -> tuple[Any, ...]:
    """Several values, or one as the only one."""
    if isinstance(given, Iterable) and not isinstance(given, str | Mapping | type):
        return tuple(given)
    return (given,)
