"""Seconds to generate and to solve the tasks' data sets at the paper's sizes, on one thread.

The reference draws one example at a time with the standard library, as the paper's public code does.
"""

import random
from collections.abc import Iterator

import torch
from benchmarks.harness import Case, run

from spectrope.tasks.base import Batch, Task
from spectrope.tasks.counting import Counting
from spectrope.tasks.distance import Distance


def distance_by_loop(config: Distance.Config, n: int) -> torch.Tensor:
    """Token ids of n examples of the clean distance task, with the fixed triggers 1 and 2."""
    rng, words, rows = random.Random(0), range(3, config.vocabulary), []
    for _ in range(n):
        left, right = rng.randint(1, config.max_side), rng.randint(1, config.max_side)
        gap = rng.randint(1, config.max_gap)
        row = [*rng.sample(words, left), 1, *rng.sample(words, gap), 2, *rng.sample(words, right)]
        row = row[: config.max_length]
        rows.append(row + [0] * (config.max_length - len(row)))
    return torch.tensor(rows)


def counting_by_loop(config: Counting.Config, n: int) -> torch.Tensor:
    """Token ids of n examples of the clean counting task, with the fixed triggers 1, ..., n_triggers."""
    rng, rows = random.Random(0), []
    triggers, fillers = range(1, config.n_triggers + 1), range(config.n_triggers + 1, config.vocabulary)
    for _ in range(n):
        row = rng.choices(fillers, k=config.length)
        for place in rng.sample(range(config.length), rng.randint(0, config.max_count)):
            row[place] = rng.choice(triggers)
        rows.append(row)
    return torch.tensor(rows)


def labels_are_right(task: Task, batch: Batch) -> None:
    """The gate: the oracle finds every label of a clean task."""
    assert task.solve(batch, 0).equal(batch.labels), "the oracle disagrees with the labels"


def ceiling_is(task: Task, percent: float) -> None:
    """The gate: Bayes accuracy as known from the project's first enumeration."""
    found = 100 * task.bayes_accuracy()
    assert abs(found - percent) <= 0.3, f"Bayes accuracy is {found:.2f} %, not {percent} %"


def cases() -> Iterator[Case]:
    distance, counting = Distance.Config().build(), Counting.Config().build()
    yield Case(
        "100,000 distance examples",
        gate=lambda: labels_are_right(distance, distance.sample(100_000, 0)),
        fast=lambda: distance.sample(100_000, 0),
        reference=lambda: distance_by_loop(Distance.Config(), 100_000),
        goal="< 1 s",
    )
    yield Case(
        "50,000 counting examples",
        gate=lambda: labels_are_right(counting, counting.sample(50_000, 0)),
        fast=lambda: counting.sample(50_000, 0),
        reference=lambda: counting_by_loop(Counting.Config(), 50_000),
    )
    ambiguous = Distance.Config(fillers="any").build()
    yield Case(
        "Bayes accuracy, 8,000 sequences",
        gate=lambda: ceiling_is(ambiguous, 97.4),
        fast=ambiguous.bayes_accuracy,
    )


if __name__ == "__main__":
    run("tasks", cases())
