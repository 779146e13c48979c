"""Accuracy on sequences longer than those of training, with the same labels."""

import polars as pl
import torch

from spectrope.core import ConfigError, Progress, Watch
from spectrope.lab.evaluation.score import score
from spectrope.lab.measures.base import TableMeasure
from spectrope.lab.runs import dtype_for, experiment_of, load_model
from spectrope.store import Run
from spectrope.tasks import Batch, TaskConfig

FACTORS = (1.0, 1.5, 2.0, 4.0)  # Lengths as multiples of the one in training.
EXAMPLES = 2000  # Of each length, held out.


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


class Lengths(TableMeasure, name="lengths"):
    """Accuracy and loss on longer and longer held-out sequences.

    A row per factor: `factor`, `length` (mean, in tokens), `accuracy` (a fraction), `loss` in nats, `n`.
    """

    def table(self, run: Run, device: torch.device, watch: Watch) -> pl.DataFrame:
        """The table.

        Raises:
            ConfigError: If the task has no longer form.
            UnsupportedError: If the encoding has no more positions, as tables have.
        """
        experiment, model, dtype = experiment_of(run), load_model(run, device), dtype_for(run, device)
        rows = []
        for done, factor in enumerate(FACTORS):
            # The held-out examples of training come after its training examples; these do as well.
            data = longer_examples(experiment.task, factor, EXAMPLES, experiment.seed, experiment.n_train)
            scores = score(model, data, dtype=dtype)
            rows.append({"factor": factor, "length": data.lengths.double().mean().item(), **vars(scores)})
            watch(Progress("lengths", done + 1, len(FACTORS)))
        return pl.DataFrame(rows)
