"""What every registered task must fulfil; a new task file is tested here by being there."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from spectrope.core.config import Configured, OneOf, config_hash, from_dict, to_dict
from spectrope.core.errors import ConfigError
from spectrope.tasks.base import PADDING, TASKS, Batch, Task, TaskConfig

N, SEED = 600, 11


@dataclass(frozen=True, kw_only=True)
class Holder(Configured):
    task: Annotated[TaskConfig, OneOf(TASKS)]


def other_values(kind: Any, value: Any) -> list[Any]:
    """Values of the same type that differ from `value`, the nearest first."""
    if get_origin(kind) is Literal:
        return [choice for choice in get_args(kind) if choice != value]
    if kind is bool:
        return [not value]
    if kind in (int, float):
        return [value + 1, value - 1, 2 * value]
    raise NotImplementedError(f"say how a field of type {kind} is perturbed")


def refusal(make: Callable[..., TaskConfig], changes: dict[str, Any]) -> str:
    """The message with which a configuration is refused, or nothing."""
    try:
        make(**changes)
    except ConfigError as error:
        return str(error)
    return ""


def perturbed(config: TaskConfig) -> Iterator[TaskConfig]:
    """For every field one valid configuration that differs in it alone."""
    hints = get_type_hints(type(config))
    for field in fields(config):
        values = other_values(hints[field.name], getattr(config, field.name))
        changes = [{field.name: value} for value in values]
        valid = [change for change in changes if not refusal(partial(replace, config), change)]
        yield replace(config, **valid[0])


def variants(name: str) -> list[TaskConfig]:
    """The default configuration and all that differ from it in one choice of kind."""
    default = TASKS.config(name)()
    hints = get_type_hints(type(default))
    choices = [field.name for field in fields(default) if get_origin(hints[field.name]) is Literal]
    others = [
        replace(default, **{choice: value})
        for choice in choices
        for value in other_values(hints[choice], getattr(default, choice))
    ]
    return [default, *others]


def differ(one: Batch, other: Batch) -> bool:
    return not all(
        same(getattr(one, name), getattr(other, name)) for name in ("inputs", "positions", "labels")
    )


def same(one: torch.Tensor | None, other: torch.Tensor | None) -> bool:
    return one is other if one is None or other is None else torch.equal(one, other)


def assert_same(one: Batch, other: Batch) -> None:
    for field in fields(Batch):
        assert_close(getattr(one, field.name), getattr(other, field.name), rtol=0, atol=0)


def with_any_sizes(name: str) -> st.SearchStrategy[dict[str, int]]:
    """Arbitrary values for some of the whole-number fields of a task."""
    hints = get_type_hints(TASKS.config(name))
    sizes = {
        field.name: st.integers(-1, 150) for field in fields(TASKS.config(name)) if hints[field.name] is int
    }
    return st.fixed_dictionaries({}, optional=sizes)


def assert_ranges(task: Task, batch: Batch) -> None:
    width = batch.inputs.shape[1]
    assert width == task.max_length
    assert ((batch.labels >= 0) & (batch.labels < task.n_classes)).all()
    assert ((batch.inputs >= 0) & (batch.inputs < task.vocabulary)).all()
    assert ((batch.inputs != PADDING) == (torch.arange(width) < batch.lengths[:, None])).all()


CONFIGS = [config for name in TASKS for config in variants(name)]


@pytest.mark.parametrize("config", CONFIGS, ids=str)
class TestTaskContract:
    def test_an_example_depends_on_its_index_and_the_seed_alone(self, config):
        whole = config.build().sample(N, SEED)
        for start, n in ((0, 1), (1, 2), (N // 2, N // 4), (N - 1, 1)):
            assert_same(config.build().sample(n, SEED, start=start), whole[start : start + n])

    def test_seeds_differ(self, config):
        task = config.build()
        assert differ(task.sample(N, SEED), task.sample(N, SEED + 1))

    def test_training_and_held_out_examples_are_disjoint(self, config):
        train, test = config.build().split(N, N // 3, SEED)
        assert (len(train), len(test)) == (N, N // 3)
        seen = {tuple(row) for row in train.inputs.tolist()}
        assert seen.isdisjoint(map(tuple, test.inputs.tolist()))

    def test_labels_lengths_and_ids_keep_their_ranges(self, config):
        task = config.build()
        assert_ranges(task, task.sample(N, SEED))

    def test_the_oracle_reaches_the_bayes_accuracy_and_is_right_where_that_is_one(self, config):
        task, n, seed = config.build(), 4000, SEED
        batch = task.sample(n, seed)
        ceiling = task.bayes_accuracy(n, seed + 1)
        accuracy = (task.solve(batch, seed) == batch.labels).double().mean().item()
        error = (2 * ceiling * (1 - ceiling) / n) ** 0.5
        assert abs(accuracy - ceiling) <= 4 * error  # two-sided 4 sigma: p < 1e-4, and 0 where no label errs

    def test_every_field_matters_and_nothing_is_shared(self, config):
        before = config.build().sample(N, SEED)
        for other in perturbed(config):
            assert differ(before, other.build().sample(N, SEED)), f"no effect: {other}"
        assert_same(config.build().sample(N, SEED), before)

    def test_configurations_round_trip_with_distinct_hashes(self, config):
        every = [Holder(task=other) for other in (config, *perturbed(config))]
        assert [from_dict(Holder, to_dict(holder)) for holder in every] == every
        assert len({config_hash(holder) for holder in every}) == len(every)


@pytest.mark.sampled
@pytest.mark.parametrize("name", list(TASKS))
@given(data=st.data())
def test_sizes_are_refused_in_one_line_that_names_the_field_or_they_work(name, data):
    changes = data.draw(with_any_sizes(name))
    if message := refusal(TASKS.config(name), changes):
        assert re.fullmatch(r"\w+\.Config\.\w+ must be .+; got -?\d+\. ?.*", message)
        return
    task = TASKS.config(name)(**changes).build()
    batch = task.sample(5, SEED)
    assert_ranges(task, batch)
    if task.bayes_accuracy(50) == 1:
        assert task.solve(batch, SEED).equal(batch.labels)
