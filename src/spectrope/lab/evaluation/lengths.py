"""Accuracy on sequences longer than those of training, with the same labels."""

from collections.abc import Sequence

import polars as pl
import torch

from spectrope.core import ConfigError, Progress, Watch, unwatched
from spectrope.lab.evaluation.score import score
from spectrope.lab.runs import dtype_for, experiment_of, load_model
from spectrope.store import Run
from spectrope.tasks import Batch, TaskConfig

FACTORS = (1.0, 1.5, 2.0, 4.0)
EXAMPLES = 2000


def longer_examples(task: TaskConfig, factor: float, n: int, seed: int, start: int = 0) -> Batch:
    """Examples `factor` times as long, each of them, whose labels are those of training.

    Distances between triggers, or their numbers, keep their range: only fillers are added, so that a model
    sees positions, and numbers of words, that it was not trained on, but no new label; see `Task.longer`.

    Args:
        task: The task of training.
        factor: How many times as long, at least 1.
        n: How many examples.
        seed: The data set's.
        start: Number of the first.

    Raises:
        ConfigError: If the task has no longer form, or the factor is below 1.
    """
    if not factor >= 1:
        raise ConfigError(f"a longer sequence has at least 1 times its words; got {factor:g} times.")
    return task.build().longer(factor, n, seed, start)


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
        scores = score(model, data, dtype=dtype)
        rows.append({"factor": factor, "length": data.lengths.double().mean().item(), **vars(scores)})
        watch(Progress("lengths", done + 1, len(factors)))
    table = pl.DataFrame(rows)
    if (tuple(factors), examples) == (FACTORS, EXAMPLES):
        run.write_frame("lengths", table)
    return table
