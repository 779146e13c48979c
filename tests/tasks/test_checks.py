"""A task that breaks a rule is refused by the rule; every registered one keeps them all."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from spectrope.core.errors import ConfigError
from spectrope.core.random import indexed_integers
from spectrope.tasks.base import TASKS, Batch, Task, TaskConfig
from spectrope.tasks.checks import check_task

LENGTH, WORDS = 6, 4


@dataclass(frozen=True, kw_only=True)
class Config(TaskConfig):
    kind = "copy"


class Copy(Task):
    """The label is the first of some random words."""

    n_classes = property(lambda self: WORDS)
    vocabulary = property(lambda self: WORDS + 1)
    max_length = property(lambda self: LENGTH)

    def sample(self, n, seed, start=0):
        index = np.arange(start, start + n)
        inputs = torch.from_numpy(indexed_integers(seed, "copy", index, LENGTH, WORDS)) + 1
        return Batch(inputs, inputs[:, 0] - 1, torch.full((n,), LENGTH))

    def solve(self, batch, seed):
        return batch.inputs[:, 0] - 1

    def bayes_accuracy(self, n=8000, seed=0):
        return 1.0


def faulty(**methods):
    return type("Copy", (Copy,), methods)(Config())


def changed(name, change):
    """A task whose batches have another field."""

    def sample(self, n, seed, start=0):
        batch = Copy.sample(self, n, seed, start)
        object.__setattr__(batch, name, change(getattr(batch, name)))  # Past the check of annotations.
        return batch

    return faulty(sample=sample)


def with_holes(inputs):
    inputs[:, 2] = 0
    return inputs


FAULTS = {
    "sample must give inputs with shape (1000, 6); got (1000, 5)": changed("inputs", lambda x: x[:, :5]),
    "sample must give labels with shape (1000,); got (1000, 1)": changed("labels", lambda x: x[:, None]),
    "sample must give positions with shape (1000, 6); got (6,)": changed(
        "positions", lambda _: torch.arange(6)
    ),
    "inputs and labels must be int64": changed("labels", lambda x: x.float()),
    "labels must lie between 0 and n_classes - 1, which is 3": changed("labels", lambda x: x + 1),
    "token ids must lie between 0 and vocabulary - 1, which is 4": changed("inputs", lambda x: x + 1),
    "token id 0 must be padding, and nothing else": changed("inputs", with_holes),
    "example i must depend on the seed and on i alone": faulty(
        sample=lambda self, n, seed, start=0: Copy.sample(self, n, seed + start)
    ),
    "on i alone": changed("positions", lambda _: torch.rand(1000, LENGTH)),
    "another seed must give other examples": faulty(
        sample=lambda self, n, seed, start=0: Copy.sample(self, n, 0, start)
    ),
    "longer: token ids must lie between 0 and vocabulary - 1, which is 4": faulty(
        longer=lambda self, factor, n, seed, start=0: replace(
            self.sample(n, seed), inputs=torch.full((n, 2 * LENGTH), 99), lengths=torch.full((n,), 2 * LENGTH)
        )
    ),
    "bayes_accuracy must be a fraction of 1; got 100.0": faulty(bayes_accuracy=lambda self, n, seed: 100.0),
    "and bayes_accuracy says 1.0000": faulty(solve=lambda self, batch, seed: batch.inputs[:, 1] - 1),
}


@pytest.mark.parametrize("rule", FAULTS)
def test_each_rule_is_checked(rule):
    with pytest.raises(ConfigError) as refused:
        check_task(FAULTS[rule])
    assert rule in str(refused.value)
    assert str(refused.value).startswith("Copy: ")


def test_a_sound_task_passes():
    check_task(Copy(Config()))


@pytest.mark.parametrize("name", list(TASKS))
def test_registered_tasks_pass(name):
    check_task(TASKS.config(name)().build())
