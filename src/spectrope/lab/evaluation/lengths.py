"""Accuracy on sequences longer than those of training, with the same labels."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import polars as pl
import torch

from spectrope.core.errors import ConfigError
from spectrope.core.progress import Progress, Watch, unwatched
from spectrope.core.random import indexed_integers
from spectrope.lab.evaluation.score import score
from spectrope.lab.runs import dtype_for, experiment_of, load_model
from spectrope.store import Run
from spectrope.tasks.base import PADDING, Batch, TaskConfig
from spectrope.tasks.counting import Counting
from spectrope.tasks.distance import Distance

FACTORS = (1.0, 1.5, 2.0, 4.0)
EXAMPLES = 2000


def longer_examples(task: TaskConfig, factor: float, n: int, seed: int, start: int = 0) -> Batch:
    """Examples `factor` times as long, each of them, whose labels are those of training.

    Distances between triggers, or their numbers, keep their range: only fillers are added, so that a model
    sees positions, and numbers of words, that it was not trained on, but no new label. For the distance task
    these are the examples of training's own length, with words before and after.

    Args:
        task: The task of training.
        factor: How many times as long, at least 1.
        n: How many examples.
        seed: The data set's.
        start: Number of the first.

    Raises:
        ConfigError: If the task is neither distance nor counting, or the factor is below 1.
    """
    if not factor >= 1:
        raise ConfigError(f"a longer sequence has at least 1 times its words; got {factor:g} times.")
    if isinstance(task, Distance.Config):
        own = Distance(task)
        return extended(own.sample(n, seed, start), factor, own.plain_words(seed), seed, start)
    if isinstance(task, Counting.Config):
        return replace(task, length=round(factor * task.length)).build().sample(n, seed, start)
    raise ConfigError(f"task {task.kind!r} has no longer form; distance and counting have.")


def extended(batch: Batch, factor: float, words: np.ndarray, seed: int, start: int = 0) -> Batch:
    """Each sequence with words before and after it, so that it has `factor` times its own number.

    How many come before is uniform; words are drawn with replacement.

    Args:
        batch: Examples from number `start` on.
        factor: At least 1.
        words: What is added.
        seed: Of the words.
        start: Number of the first example.
    """
    index = np.arange(start, start + len(batch))
    own = batch.lengths.numpy()
    whole = np.rint(factor * own).astype(np.int64)
    before = indexed_integers(seed, "lengths/before", index, 1, (whole - own + 1)[:, None])
    place = np.arange(whole.max())
    chosen = words[indexed_integers(seed, "lengths/words", index, len(place), len(words))]
    inside = (place >= before) & (place < before + own[:, None])
    kept = np.arange(batch.inputs.shape[1]) < own[:, None]
    chosen[inside] = batch.inputs.numpy()[kept]
    chosen[place >= whole[:, None]] = PADDING
    return replace(batch, inputs=torch.from_numpy(chosen), lengths=torch.from_numpy(whole))


def lengths(
    run: Run,
    device: torch.device,
    factors: Sequence[float] = FACTORS,
    examples: int = EXAMPLES,
    watch: Watch = unwatched,
) -> pl.DataFrame:
    """Score a finished run on longer and longer held-out sequences; return the table "lengths".

    The run keeps it at the usual factors and number of examples alone, which claims are judged by.

    A row per factor: `factor`, `length` (mean, in tokens), `accuracy` (a fraction), `loss` in nats, `n`.

    Args:
        run: A finished run.
        device: Where to compute.
        factors: Lengths as multiples of the one in training.
        examples: Held-out examples of each length.
        watch: Shown lengths done.

    Raises:
        ConfigError: If the task has no longer form.
        UnsupportedError: If the encoding has no more positions, as tables have.
    """
    experiment, model = experiment_of(run), load_model(run, device)
    dtype = dtype_for(run, device)
    rows = []
    for done, factor in enumerate(factors):
        # The held-out examples of training come after its training examples; these do as well.
        data = longer_examples(experiment.task, factor, examples, experiment.seed, experiment.n_train)
        found = score(model, data, dtype=dtype)
        rows.append({"factor": factor, "length": data.lengths.double().mean().item(), **vars(found)})
        watch(Progress("lengths", done + 1, len(factors)))
    table = pl.DataFrame(rows)
    if (tuple(factors), examples) == (FACTORS, EXAMPLES):
        run.write_frame("lengths", table)
    return table
