"""Accuracy on sequences longer than those of training, with the same labels."""

from collections.abc import Sequence
from dataclasses import replace

import polars as pl
import torch

from spectrope.core.device import choose_dtype
from spectrope.core.errors import ConfigError
from spectrope.evaluation.score import score
from spectrope.store import Run
from spectrope.sweeps.events import Event, Listener, silent
from spectrope.sweeps.runs import experiment_of, load_model
from spectrope.tasks.base import TaskConfig
from spectrope.tasks.counting import Counting
from spectrope.tasks.distance import Distance

FACTORS = (1.0, 1.5, 2.0, 4.0)
EXAMPLES = 2000


def lengthened(task: TaskConfig, factor: float) -> TaskConfig:
    """The same task on sequences up to `factor` times as long, whose labels are those of training.

    Distances between triggers, or their numbers, keep their range: only fillers are added, so that a model
    sees positions, and numbers of words, that it was not trained on, but no new label.

    Raises:
        ConfigError: If the task is neither distance nor counting, or its vocabulary is too small.
    """
    if isinstance(task, Distance.Config):
        length = round(factor * task.max_length)
        added = (length - task.max_length) // 2
        return replace(task, max_length=length, max_side=task.max_side + added)
    if isinstance(task, Counting.Config):
        return replace(task, length=round(factor * task.length))
    raise ConfigError(f"task {task.kind!r} has no longer form; distance and counting have.")


def lengths(
    run: Run,
    device: torch.device,
    factors: Sequence[float] = FACTORS,
    examples: int = EXAMPLES,
    listen: Listener = silent,
) -> pl.DataFrame:
    """Score a finished run on longer and longer held-out sequences; keep and return the table "lengths".

    A row per factor: `factor`, `length` (longest, in tokens), `accuracy` (a fraction), `loss` in nats, `n`.

    Args:
        run: A finished run.
        device: Where to compute.
        factors: Lengths as multiples of the one in training.
        examples: Held-out examples of each length.
        listen: Told of lengths done.

    Raises:
        ConfigError: If the task has no longer form.
        UnsupportedError: If the encoding has no more positions, as tables have.
    """
    experiment, model = experiment_of(run), load_model(run, device)
    dtype = choose_dtype(experiment.training.precision, device)
    rows = []
    for done, factor in enumerate(factors):
        task = lengthened(experiment.task, factor).build()
        # The held-out examples of training come after its training examples; these do as well.
        data = task.sample(examples, experiment.seed, start=experiment.n_train)
        found = score(model, data, dtype=dtype)
        rows.append({"factor": factor, "length": task.max_length, **vars(found)})
        listen(Event("lengths", done + 1, len(factors)))
    table = pl.DataFrame(rows)
    run.write_frame("lengths", table)
    return table
