"""Base class of tasks: labelled token sequences, an oracle, and the Bayes accuracy."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Int
from torch import Tensor

from spectrope.core import ConfigError, Configured, FromConfig, Registry, configured

PADDING = 0
TASKS: Registry[type["Task"]] = Registry("task", "spectrope.tasks", "Task")


@dataclass(frozen=True)
class Batch:
    """Examples as tensors.

    Args:
        inputs: Token ids, padded at the end with 0, with shape (n, t).
        labels: Class of each example, with shape (n,).
        lengths: Tokens before the padding, with shape (n,).
        positions: Position of each token with shape (n, t), where the task supplies them; on several axes
            (n, t, 1 + axes), the order of the token first.
    """

    inputs: Int[Tensor, "n t"]
    labels: Int[Tensor, " n"]
    lengths: Int[Tensor, " n"]
    positions: Tensor | None = None

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def commonest(self) -> float:
        """Share of the most frequent label."""
        return self.labels.bincount().max().item() / len(self)

    def __getitem__(self, index: slice | Tensor) -> "Batch":
        """The examples that a slice or an index tensor selects."""
        return self._map(lambda values: values[index])

    def to(self, device: torch.device) -> "Batch":
        """This batch on another device."""
        return self._map(lambda values: values.to(device, non_blocking=True))

    def trimmed(self) -> "Batch":
        """This batch without the columns that are padding in every example."""
        width = int(self.lengths.max())
        positions = None if self.positions is None else self.positions[:, :width]
        return replace(self, inputs=self.inputs[:, :width], positions=positions)

    def _map(self, change: Any) -> "Batch":
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return replace(self, **{name: change(value) for name, value in values.items() if value is not None})


@dataclass(frozen=True, kw_only=True)
class TaskConfig(Configured):
    """Base of the tasks' configurations."""

    kind: ClassVar[str]

    def build(self) -> "Task":
        """The task that this configuration describes."""
        return TASKS[self.kind](self)


@dataclass(frozen=True, kw_only=True)
class Size:
    """Size of a task at one scale; None uses the default of the task or of the scale.

    Args:
        config: The task's fields.
        n_examples: Examples in all, of training and held out.
        epochs: Passes over the training examples.
        learning_rate: Peak, after warm-up.
        pooling: Which tokens' states the classifier reads.
    """

    config: TaskConfig | None = None
    n_examples: int | None = None
    epochs: int | None = None
    learning_rate: float | None = None
    pooling: Literal["mean", "last"] | None = None


class Task(FromConfig):
    """A source of examples, reproducible per index: example i under a seed never depends on the others.

    A subclass names itself (`class Counting(Task, name="counting")`) and may declare its `sizes`; commands,
    experiments at every scale and comparisons follow.

    A task is built from its configuration or from the fields of that:

        >>> task = sp.tasks.Counting(max_count=5)
        >>> batch = task.sample(3, seed=0)
        >>> bool((task.solve(batch, seed=0) == batch.labels).all())
        True

    Args:
        config: The task's own configuration, an instance of its `Config`.
        fields: Fields of the configuration, if no `config` is given; all others keep their defaults.

    Raises:
        ConfigError: If both are given, `config` has another type, or a field is unknown or breaks a rule.
    """

    registry = TASKS
    Config: ClassVar[type[TaskConfig]] = TaskConfig
    sizes: ClassVar[Mapping[str, Size]] = {}  # By scale; one that is missing takes the defaults.

    def __init__(self, config: TaskConfig | None = None, **fields: Any) -> None:
        self.config: Any = configured(type(self).Config, config, fields)
        self.setup(self.config)

    def setup(self, config: Any) -> None:
        """Prepare what the task draws from, according to its configuration; subclasses may override it."""

    @property
    def n_classes(self) -> int:
        """Number of labels, 0 included."""
        raise NotImplementedError

    @property
    def vocabulary(self) -> int:
        """Number of token ids, padding included."""
        raise NotImplementedError

    @property
    def max_length(self) -> int:
        """Longest sequence, in tokens."""
        raise NotImplementedError

    def sample(self, n: int, seed: int, start: int = 0) -> Batch:
        """Examples start, ..., start + n - 1 of the data set that `seed` names."""
        raise NotImplementedError

    def split(self, n_train: int, n_test: int, seed: int) -> tuple[Batch, Batch]:
        """Training and held-out examples of one data set, by disjoint indices.

        Examples are drawn independently, so where there are few sequences, as of short ones, the same can be
        drawn for both.
        """
        return self.sample(n_train, seed), self.sample(n_test, seed, start=n_train)

    def longer(self, factor: float, n: int, seed: int, start: int = 0) -> Batch:
        """Examples `factor` times as long, with labels in the range of training.

        Raises:
            ConfigError: If the task defines no longer sequences.
        """
        raise ConfigError(f"task {self.config.kind!r} has no longer form: its class defines no `longer`.")

    def solve(self, batch: Batch, seed: int) -> Int[Tensor, " n"]:
        """The correct label of each sequence by the rule of the task (the oracle)."""
        raise NotImplementedError

    def bayes_accuracy(self, n: int = 8000, seed: int = 0) -> float:
        """Best accuracy that any classifier can reach on this task, as a fraction."""
        raise NotImplementedError
