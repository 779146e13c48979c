"""Accuracy on sequences longer than those in training, with the same labels."""

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
    """Examples `factor` times as long as those in training, with the same range of labels.

    Only fillers are added, so that a model sees positions and lengths that it was not trained on, but no new
    distances between triggers, numbers of triggers or labels; see `Task.longer`.

    Args:
        task: The task of training.
        factor: Factor of the length, at least 1.
        n: Number of examples.
        seed: Seed of the data set.
        start: Index of the first example.

    Raises:
        ConfigError: If the task does not support longer sequences, or the factor is below 1.
    """
    if not factor >= 1:
        raise ConfigError(f"the factor of the length must be at least 1; got {factor:g}.")
    return task.build().longer(factor, n, seed, start)


class Lengths(TableMeasure, name="lengths"):
    """Accuracy and loss on held-out sequences of increasing length.

    Columns: `factor`, `length` (mean, in tokens), `accuracy` (a fraction), `loss` in nats, `n`.
    """

    def table(self, run: Run, device: torch.device, watch: Watch) -> pl.DataFrame:
        """The table.

        Raises:
            ConfigError: If the task does not support longer sequences.
            UnsupportedError: If the encoding has no more positions, like learned tables.
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
