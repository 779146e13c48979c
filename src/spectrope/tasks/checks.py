"""Check what training and evaluation assume about a task, on examples of it."""

from collections.abc import Iterator

import torch

from spectrope.core import ConfigError
from spectrope.tasks.base import PADDING, Batch, Task

CheckedRule = tuple[bool, str]  # Whether it holds, and its words.


def check_task(task: Task, n: int = 1000, seed: int = 0) -> None:
    """Raise an error if a task violates an assumption.

    Args:
        task: The task, at the sizes that will be trained.
        n: Number of examples to check.
        seed: Of these examples.

    Raises:
        ConfigError: Naming the first rule that is broken.
    """
    batch = task.sample(n, seed)
    for rules in (
        _shapes(task, batch, n),
        _ranges(task, batch),
        _draws(task, batch, seed),
        _oracle(task, batch, seed),
        _longer(task, n, seed),
    ):
        for holds, words in rules:
            if not holds:
                raise ConfigError(f"{type(task).__name__}: {words}.")


def _shapes(task: Task, batch: Batch, n: int) -> Iterator[CheckedRule]:
    shapes = {"inputs": (n, task.max_length), "labels": (n,), "lengths": (n,)}
    if batch.positions is not None:
        axes = batch.positions.shape[2:3]  # The order, and coordinates behind it; none where one axis does.
        shapes["positions"] = (n, task.max_length, *axes)
    for name, shape in shapes.items():
        got = tuple(getattr(batch, name).shape)
        yield got == shape, f"sample must give {name} with shape {shape}; got {got}"
    yield batch.inputs.dtype == batch.labels.dtype == torch.int64, "inputs and labels must be int64"


def _ranges(task: Task, batch: Batch) -> Iterator[CheckedRule]:
    for name, values, bound in (
        ("labels", batch.labels, "n_classes"),
        ("token ids", batch.inputs, "vocabulary"),
    ):
        below = getattr(task, bound)
        is_within = bool(((values >= 0) & (values < below)).all())
        yield is_within, f"{name} must lie between 0 and {bound} - 1, which is {below - 1}"
    is_token = torch.arange(batch.inputs.shape[1]) < batch.lengths[:, None]
    yield (
        torch.equal(batch.inputs != PADDING, is_token),
        f"token id {PADDING} must be padding, and nothing else",
    )


def _draws(task: Task, batch: Batch, seed: int) -> Iterator[CheckedRule]:
    n = len(batch)
    parts = ((0, 1), (n // 2, n // 4), (n - 1, 1))
    is_indexed = all(_same(task.sample(size, seed, start=at), batch[at : at + size]) for at, size in parts)
    yield is_indexed, "example i must depend on the seed and on i alone"
    yield not _same(batch, task.sample(n, seed + 1)), "another seed must give other examples"


def _oracle(task: Task, batch: Batch, seed: int) -> Iterator[CheckedRule]:
    n, ceiling = len(batch), task.bayes_accuracy(len(batch), seed)
    yield 0 < ceiling <= 1, f"bayes_accuracy must be a fraction of 1; got {ceiling!r}"
    accuracy = (task.solve(batch, seed) == batch.labels).double().mean().item()
    # Both may be estimates from n examples; four standard errors are exceeded once in 10,000 tries.
    is_close = abs(accuracy - ceiling) <= 4 * (2 * ceiling * (1 - ceiling) / n) ** 0.5
    yield is_close, f"solve is right in {accuracy:.4f} of {n} examples, and bayes_accuracy says {ceiling:.4f}"


def _longer(task: Task, n: int, seed: int) -> Iterator[CheckedRule]:
    """What a task with longer sequences gives at twice the length."""
    if type(task).longer is Task.longer:
        return
    batch = task.longer(2.0, n, seed)
    for holds, words in _ranges(task, batch):
        yield holds, f"longer: {words}"
    is_right = len(batch) == n and bool((batch.lengths <= batch.inputs.shape[1]).all())
    yield is_right, f"longer must give {n} examples, within their inputs"


def _same(one: Batch, other: Batch) -> bool:
    if one.positions is None or other.positions is None:
        numbered = one.positions is other.positions
    else:
        numbered = torch.equal(one.positions, other.positions)
    return numbered and torch.equal(one.inputs, other.inputs) and torch.equal(one.labels, other.labels)
